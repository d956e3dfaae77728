"""Rows cut out of a history: these, and no other byte."""

import io
import tracemalloc
from collections.abc import Sequence

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.alerts.container import varint
from stampede.alerts.framing import Framing
from stampede.alerts.history_cut import without_rows
from stampede.errors import Undecodable, Unusable
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.mixed_programmes import mixed_alert

FRAMING = Framing(1 << 24)
HISTORIES = ("prv_candidates", "fp_hists")
REAL = [one for one in made_alerts.real_alerts() if one[:3] == b"Obj"]


def cut(message: bytes, *programids: int) -> tuple[bytes, int]:
    """A message without the rows of other programmes, and how many rows were cut out."""
    schema, record = FRAMING.take(message)
    made, rows = without_rows(schema, record, 1, programids)
    return FRAMING.replaced(message, made), rows


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([None, 1, 2, 3]), max_size=6),
    st.sets(st.sampled_from([1, 2, 3])),
    st.sampled_from(["null", "deflate", "snappy"]),
)
def test_a_cut_message_is_one_that_never_had_the_rows(
    history: list[int | None], programids: set[int], codec: str
) -> None:
    message = mixed_alert(1, history=history, codec=codec)
    [want] = records(message)
    before = sum(len(want[name]) for name in HISTORIES)
    for name in HISTORIES:
        want[name] = [
            row
            for row in want[name]
            if (1 if row["programid"] is None else row["programid"]) in programids
        ]
    made, rows = cut(message, *programids)
    assert records(made) == [want]
    assert rows == before - sum(len(want[name]) for name in HISTORIES)
    if not rows and codec == "null":
        assert made == message


@pytest.mark.parametrize("with_size", [True, False])
def test_rows_in_several_blocks(with_size: bool) -> None:
    """An array may come in blocks, each with its size in bytes."""
    schema, record = FRAMING.take(mixed_alert(1, history=[1, 2]))
    [alert] = records(mixed_alert(1, history=[1, 2]))
    items = [encoded(row) for row in alert["fp_hists"]]
    whole = varint(2) + b"".join(items) + varint(0)
    assert bytes(record).count(whole) == 1
    blocks = b"".join(
        (varint(-1) + varint(len(item)) if with_size else varint(1)) + item for item in items
    )
    record = bytes(record).replace(whole, blocks + varint(0))
    made, rows = without_rows(schema, record, 1, [1])
    assert (made, rows) == (FRAMING.take(mixed_alert(1, history=[1])).record, 3)


def encoded(row: dict) -> bytes:
    out = io.BytesIO()
    point = made_alerts.ztf_schema()["fields"][5]["type"][1]["items"]
    fastavro.schemaless_writer(out, fastavro.parse_schema(point), row)
    return out.getvalue()


def retyped(kind: object, programid: float | str | bytes) -> bytes:
    """A mixed alert whose `fp_hists` have programids of another type."""
    schema = made_alerts.ztf_schema()
    [field] = (one for one in schema["fields"] if one["name"] == "fp_hists")
    [of_row] = (one for one in field["type"][1]["items"]["fields"] if one["name"] == "programid")
    of_row["type"] = kind
    [record] = records(mixed_alert(1, history=[1]))
    record["fp_hists"] = [*record["fp_hists"], record["fp_hists"][0] | {"programid": programid}]
    for row in record["fp_hists"][:1]:
        row["programid"] = type(programid)(1)
    return made_alerts.contained([record], schema)


@pytest.mark.parametrize("programid", [2.0, "2", b"2", True])
@pytest.mark.parametrize("optional", [False, True])
def test_a_programid_that_is_no_integer_refuses_the_schema(
    programid: float | str | bytes, optional: bool
) -> None:
    """Rows that cannot be compared must not be taken for the alert's own."""
    names = {float: "double", str: "string", bytes: "bytes", bool: "boolean"}
    kind = names[type(programid)]
    message = retyped(["null", kind] if optional else kind, programid)
    with pytest.raises(Unusable, match=r"fp_hists\.programid is not of type int"):
        FRAMING.take(message)


def test_a_history_may_have_null_in_place_of_a_row() -> None:
    schema = made_alerts.ztf_schema()
    [field] = (one for one in schema["fields"] if one["name"] == "fp_hists")
    field["type"][1]["items"] = ["null", field["type"][1]["items"]]
    [record] = records(mixed_alert(1, history=[1, 2]))
    record["fp_hists"].append(None)
    made, rows = cut(made_alerts.contained([record], schema), 1)
    [want] = records(mixed_alert(1, history=[1]))
    assert records(made) == [want | {"fp_hists": [*want["fp_hists"], None]}]
    assert rows == 3


def test_a_long_array_needs_little_memory() -> None:
    schema = made_alerts.ztf_schema()
    schema["fields"].append({"name": "more", "type": {"type": "array", "items": "boolean"}})
    [record] = records(mixed_alert(1, history=[1, 2]))
    message = made_alerts.contained([record | {"more": [True] * 200_000}], schema)
    tracemalloc.start()
    try:
        _, rows = cut(message, 1)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(message)
    finally:
        tracemalloc.stop()
    assert rows == 3


def test_bytes_that_do_not_fit_are_refused() -> None:
    schema, record = FRAMING.take(mixed_alert(1))
    for bad in (bytes(record)[:-1], bytes(record) + b"\0", b"", b"\x80" * 20):
        with pytest.raises(Undecodable):
            without_rows(schema, bad, 1, [1])


def test_damaged_records_end_in_no_other_error() -> None:
    schema, record = FRAMING.take(mixed_alert(1))
    start = bytes(record).index(b"of programme 1") - 1500  # where the histories are
    for at in [*range(0, 200, 3), *range(start, start + 1800, 5)]:
        for value in (0, 1, 0x7F, 0xFF):
            bad = bytearray(record)
            bad[at] = value
            try:
                without_rows(schema, bytes(bad), 1, [1])
            except Undecodable:
                continue


@pytest.mark.real
@pytest.mark.skipif(not REAL, reason="no real alerts are here")
@pytest.mark.parametrize("programids", [[1], [2]])
def test_real_alerts(programids: Sequence[int]) -> None:
    """All rows of the real alerts at hand are of programme 1: all stay, or all go."""
    of_ztf = [one for one in REAL if "candidate" in records(one)[0]]
    for message in (one for one in of_ztf if records(one)[0]["candidate"]["programid"] == 1):
        made, rows = cut(message, *programids)
        [want] = records(message)
        history = sum(len(want.get(name) or ()) for name in HISTORIES)
        if programids == [1]:
            assert (made, rows) == (message, 0)
        else:
            assert rows == history
            for name in HISTORIES:
                if want.get(name):
                    want[name] = []
            assert records(made) == [want]
