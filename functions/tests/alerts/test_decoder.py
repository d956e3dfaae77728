"""Bytes that make DataFusion hang or lose rows: `check` finds them."""

import random

import pytest

from stampede.alerts.decoder import check
from stampede.alerts.framing import Framing
from stampede.errors import DecoderFailed, Undecodable
from stampede.events.workers.spool import MOST_PIECES
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_decoder


def framed(message: bytes):
    return Framing(16 << 20).take(message)


@pytest.mark.parametrize("version", [300, 704, 1101])
def test_check_accepts_whole_records_only(version: int) -> None:
    rng = random.Random(version)
    for seed in range(10):
        schema, record = framed(
            made_alerts.confluent(made_alerts.rubin_record(version, seed), version)
        )
        check(schema, record)
        for damaged in (record + b"\0", record + bytes(50), record[: rng.randrange(len(record))]):
            with pytest.raises(Undecodable, match=r"left over|cut off|do not fit"):
                check(schema, damaged)


def test_check_accepts_a_record_of_any_name() -> None:
    """Brokers export Rubin's alerts again under names of their own."""
    named = made_alerts.ztf_schema() | {"name": "topLevelRecord"}
    check(*framed(made_alerts.contained([made_alerts.ztf_record()], named)))


def test_check_finds_a_schema_id_that_does_not_fit() -> None:
    message = made_alerts.confluent(made_alerts.rubin_record(704, 1), 704)
    schema, record = framed(b"\0" + (1101).to_bytes(4, "big") + message[5:])
    with pytest.raises(Undecodable):
        check(schema, record)


def test_a_history_that_claims_an_endless_length_is_refused() -> None:
    record = made_alerts.rubin_record(1101, 1) | {"prvDiaSources": [], "prvDiaForcedSources": None}
    schema, good = framed(made_alerts.confluent(record, 1101))
    at = good.index(b"\x02\x00", 300)  # the array's branch of the union, then "no items"
    for claim in (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(Undecodable):
            check(schema, good[: at + 1] + claim + good[at + 1 :])


def test_wrong_number_of_rows_is_no_success(tmp_path) -> None:
    """DataFusion drops an empty record silently; `Decoder` fails."""
    schema, record = framed(made_alerts.confluent(made_alerts.rubin_record(1101, 1), 1101))
    decoder = make_decoder(tmp_path)
    assert decoder.decode(schema, [[record]], ["diaSourceId"]).num_rows == 1
    with pytest.raises(DecoderFailed):
        decoder.decode(schema, [[record], [b""], [record]], ["diaSourceId"])


def test_batches_of_one_decoder_are_read_separately(tmp_path) -> None:
    """Longer, shorter and equally long batches follow each other in the same file."""
    alerts = [made_alerts.confluent(made_alerts.rubin_record(1101, n), 1101) for n in range(9)]
    schema, records = framed(alerts[0]).schema, [framed(alert).record for alert in alerts]
    decoder = make_decoder(tmp_path)

    def ids(numbers: list[int]) -> list[int]:
        pieces = [[records[n][:99], records[n][99:]] for n in numbers]
        return decoder.decode(schema, pieces, ["diaSourceId"])["diaSourceId"].to_pylist()

    all_of_them = ids([*range(9)] * MOST_PIECES)
    first = all_of_them[:9]
    assert len(set(first)) == 9
    assert all_of_them == first * MOST_PIECES
    for numbers in ([3], [4], [4, 3], [3, 4], [0, 1, 2]):
        assert ids(numbers) == [first[n] for n in numbers]
