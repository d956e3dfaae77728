"""Images bypass the decoder, and nothing else does, whatever a record looks like."""

import gc
import gzip
import random
from collections.abc import Callable
from functools import partial

import pytest

from stampede.alerts import batch_decoder
from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.batch_parts import Decoded
from stampede.alerts.container import varint
from stampede.alerts.decoder import Decoder
from stampede.alerts.image_tokens import LEAST, STEP, ImageTokens, Misplaced
from stampede.alerts.isolation import Isolation
from stampede.alerts.surveys import rubin, ztf
from stampede.handlers.decoding import DecoderFile
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import SECRET, make_batch_decoder
from tests.support.alerts.oracle_comparison import assert_as_the_oracle
from tests.support.waiting import eventually

FITS = made_alerts.FITS


class Seen(Decoder):
    """A decoder that records the size of each batch in bytes."""

    def __init__(self, directory) -> None:
        super().__init__(DecoderFile(directory))
        self.sizes: list[int] = []

    def decode(self, schema, records, columns):
        self.sizes.append(sum(len(piece) for record in records for piece in record))
        return super().decode(schema, records, columns)


@pytest.fixture
def seen(tmp_path) -> Seen:
    return Seen(tmp_path)


@pytest.fixture
def decoder(tmp_path, seen) -> BatchDecoder:
    return make_batch_decoder(tmp_path, 62000.0, seen)


def rubin_alert(**changes) -> bytes:
    record = made_alerts.rubin_record(1101, 1) | {
        "prvDiaSources": None,
        "prvDiaForcedSources": None,
    }
    images = {f"cutout{kind}": FITS for kind in ("Difference", "Science", "Template")}
    return made_alerts.confluent(record | images | changes, 1101)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def zipped(size: int) -> bytes:
    return gzip.compress(b"SIMPLE  = " + noise(size), mtime=0)


def stamp(data: bytes, name: str = "x.fits.gz") -> dict:
    return {"fileName": name, "stampData": data}


def test_the_decoder_sees_no_images(decoder: BatchDecoder, seen: Seen) -> None:
    lsst = rubin_alert(cutoutScience=FITS + bytes(100_000))
    images = {
        "cutoutScience": stamp(zipped(20_000)),
        "cutoutTemplate": stamp(zipped(3 * STEP)),
        "cutoutDifference": stamp(zipped(700)),
    }
    assert_as_the_oracle(decoder, [lsst, made_alerts.ztf_alert(**images)])
    assert len(seen.sizes) == 6  # two schemas, read for cutouts, for light curves, and for both
    assert max(seen.sizes) < 3000 < 100_000 < len(lsst)


@pytest.mark.parametrize("size", [*range(LEAST - 2, LEAST + 2), 8191, 8192, STEP, 1 << 20, 1 << 21])
def test_images_of_any_length(decoder: BatchDecoder, size: int) -> None:
    fits = FITS[:30] + noise(size - 30)
    assert_as_the_oracle(decoder, [rubin_alert(cutoutScience=fits, cutoutTemplate=None)])


@pytest.mark.parametrize("before", [0, *range(STEP - 40, STEP + 5, 3), 3 * STEP - 7])
def test_images_at_any_place(decoder: BatchDecoder, before: int) -> None:
    """The magic number may lie across the end of a step of the search."""
    messages = [
        made_alerts.ztf_alert(cutoutScience=stamp(zipped(700), "n" * before)),
        rubin_alert(cutoutDifference=FITS + bytes(before), cutoutScience=None),
    ]
    assert_as_the_oracle(decoder, messages)


def test_an_image_within_an_image(decoder: BatchDecoder) -> None:
    inner = varint(900) + FITS[:900]
    assert_as_the_oracle(
        decoder, [rubin_alert(cutoutScience=FITS + inner, cutoutTemplate=inner[2:])]
    )


class Mistaken(ImageTokens):
    """Counts something as an image that is in no record."""

    def restore(self, values):
        self._images.append(b"one that is nowhere")
        return super().restore(values)


def test_after_a_misplaced_token_the_original_records_are_decoded(
    decoder: BatchDecoder, seen: Seen, monkeypatch
) -> None:
    monkeypatch.setattr(batch_decoder, "ImageTokens", Mistaken)
    message = rubin_alert(cutoutTemplate=None)
    assert_as_the_oracle(decoder, [message])
    assert seen.sizes == [seen.sizes[0], len(message) - 5] * 3
    assert seen.sizes[0] < 3000


def test_a_string_that_looks_like_an_image_is_decoded(decoder: BatchDecoder, seen: Seen) -> None:
    """It has the length and the first bytes of an image, and must come out unchanged."""
    record = made_alerts.rubin_record(1101, 1) | {"cutoutScience": FITS + bytes(20_000)}
    record["diaSource"]["band"] = made_alerts.FORGED
    message = made_alerts.confluent(record, 1101)
    for read in (decoder.cutouts, _decode_both(decoder), decoder.detections):
        found = read([message], Isolation.CHECKED)
        assert found.faults == [None]
    assert set(seen.sizes) == {len(message) - 5}
    assert made_alerts.FORGED in found.rows["band"].to_pylist()


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize(
    "message", [rubin_alert(), made_alerts.ztf_alert(cutoutScience=stamp(zipped(9000)))]
)
def test_nothing_holds_a_message_that_was_read(
    decoder: BatchDecoder, message: bytes, isolation: Isolation
) -> None:
    """A worker's messages are views of one map, which is freed once no view is left."""
    for decode in (decoder.cutouts, decoder.detections, _decode_both(decoder)):
        data = bytearray(message)
        assert decode([memoryview(data)], isolation).faults == [None]
        # A thread of the decoder may hold it a moment longer, or a cycle of references.
        eventually(partial(resized, data), 20)


def _decode_both(decoder: BatchDecoder) -> Callable[..., Decoded]:
    return lambda *given: decoder.alerts(*given).cutouts


def resized(data: bytearray) -> bool:
    try:
        data.append(0)
    except BufferError:  # a view is left
        gc.collect()  # as a worker does after each batch
        return False
    return True


def test_a_token_that_does_not_come_back_is_an_error() -> None:
    tokens = ImageTokens(rubin.IMAGE_MAGIC, SECRET)
    pieces = tokens.replace(b"\x02" + varint(len(FITS)) + FITS + b"\x00")
    token = bytes(pieces[1])[1:]
    assert tokens.restore({"science": [token, None]}) == {"science": [FITS, None]}
    for wrong in (None, token[:-1], token + b"\0", FITS):
        with pytest.raises(Misplaced, match="1 tokens went in, 0 came back"):
            tokens.restore({"science": [wrong]})


def test_an_image_is_replaced_by_a_token_and_restored() -> None:
    tokens = ImageTokens(ztf.IMAGE_MAGIC, SECRET)
    image = zipped(5000)
    record = memoryview(b"name" + varint(len(image)) + image + b"\x02rest")
    first, token, rest = tokens.replace(record)
    assert (bytes(first), bytes(rest)) == (b"name", b"\x02rest")
    assert tokens.restore({"science": [bytes(token)[1:]]}) == {"science": [image]}
    assert tokens.replace(b"") == [b""]
    assert tokens.replace(b"\x1f\x8b\x08") == [b"\x1f\x8b\x08"]
