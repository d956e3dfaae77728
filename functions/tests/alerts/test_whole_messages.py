"""A message is exactly one alert, or it is refused: whatever follows it, wherever it is cut."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.decoder import check
from stampede.alerts.framing import Framing, whole_record
from stampede.errors import StampedeError
from stampede_local.demo import oracle
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.batch_decoders import make_batch_decoder

MESSAGES = {
    "confluent": made_alerts.confluent(made_alerts.rubin_record(1101), 1101),
    **{
        codec: made_alerts.contained([made_alerts.ztf_record(7)], made_alerts.ztf_schema(), codec)
        for codec in ("null", "deflate", "snappy")
    },
}
EACH = pytest.mark.parametrize("framing", MESSAGES)


def whole(message: bytes) -> bool:
    """Whether a message is one whole alert, as a function judges it."""
    try:
        framed = Framing(16 << 20).take(message)
        check(framed.schema, framed.record)
    except StampedeError:
        return False
    record = whole_record(framed.record, framed.schema.parsed)
    assert record == oracle.read_record(message)[1]
    return True


@EACH
def test_a_whole_message_is_an_alert(framing: str) -> None:
    assert whole(MESSAGES[framing])


@EACH
@given(st.binary(min_size=1, max_size=50))
def test_bytes_behind_a_message_make_it_none(framing: str, more: bytes) -> None:
    assert not whole(MESSAGES[framing] + more)


@EACH
@given(st.data())
def test_a_message_that_is_cut_is_none(framing: str, data: st.DataObject) -> None:
    message = MESSAGES[framing]
    assert not whole(message[: data.draw(st.integers(0, len(message) - 1))])


@EACH
@pytest.mark.parametrize("second", MESSAGES)
def test_two_messages_are_none(framing: str, second: str) -> None:
    assert not whole(MESSAGES[framing] + MESSAGES[second])


def test_deflate_data_with_bytes_behind_them_are_refused_by_name(tmp_path: Path) -> None:
    """fastavro and Java skip them."""
    message = MESSAGES["deflate"]
    (record,) = records(message)
    messages = [message, *(made_alerts.deflated(record, more) for more in (b"", b"\0", b"behind"))]
    for each in messages:
        assert records(each) == [record]
    decoder = make_batch_decoder(tmp_path)
    for read in (decoder.cutouts, decoder.detections):
        faults = read(messages).faults
        assert faults[:2] == [None, None]
        for fault, size in zip(faults[2:], (1, 6), strict=True):
            assert f"followed by {size} bytes that are not its checksum" in str(fault)
