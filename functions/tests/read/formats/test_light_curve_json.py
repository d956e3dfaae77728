"""JSON of a light curve holds what the table holds, whatever that is."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stampede.alerts.columns import DETECTION
from stampede.read.formats.light_curves import shortest, to_json
from tests.support.read.read_service import LSST_OBJECT, ZTF_OBJECT, point

TEXTS = st.sampled_from(["0", "61,62", 'a"b', "%s", "%", "é\n\\", "", "null"])
FLOATS = st.one_of(st.floats(width=32), st.integers(-(10**6), 10**6).map(float))
OF_TYPE = {
    pa.bool_(): st.booleans(),
    pa.string(): TEXTS,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): FLOATS,
    pa.float64(): st.floats(),
}
ROW = st.fixed_dictionaries(
    {
        field.name: OF_TYPE[field.type] | (st.none() if field.nullable else st.nothing())
        for field in DETECTION
        if field.name not in ("object_id", "survey")
    }
)


def expected(field: pa.Field, value: object) -> object:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(str(np.float32(value))) if field.type == pa.float32() else value
    return str(value) if value is not None and field.type == pa.int64() else value


@given(st.lists(ROW, max_size=4), st.booleans())
def test_json_holds_every_value(rows: list[dict], equal: bool) -> None:
    head = {"object_id": ZTF_OBJECT, "survey": "ztf"}
    rows = [{**head, **row} for row in (rows[:1] * len(rows) if equal else rows)]
    table = pa.Table.from_pylist(rows, DETECTION)
    found = json.loads(to_json(table), parse_constant=pytest.fail)
    names = [field for field in DETECTION if field.name not in head]
    assert found.pop("detections") == [
        {field.name: expected(field, row[field.name]) for field in names}
        for row in table.to_pylist()
    ]
    assert found == (head if rows else dict.fromkeys(head))


def test_json_is_in_the_order_of_columns_and_without_spaces() -> None:
    rows = [point(LSST_OBJECT, "lsst", 9007199254740993, 60000.0, flux=100.1, flux_err=-0.0)]
    text = to_json(pa.Table.from_pylist(rows, DETECTION)).decode()
    assert text.startswith(
        f'{{"object_id":"{LSST_OBJECT}","survey":"lsst","detections":[{{"forced":false,'
        '"limit":false,"source_id":"9007199254740993","mjd":60000.0,"band":"r","ra":10.0,'
        '"dec":-5.0,"flux":100.1,"flux_err":-0.0,"total_flux":null,'
    )
    assert text.endswith("}]}")


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
@example(
    np.array([0, -0.0, 1e-13, 9.999999e13, 1e14, 1e-14, 3.4e38, 1e-45], "f4").view("u4").tolist()
)
@example((np.float32(10) ** np.arange(-20, 20, dtype="f4")).astype("f4").view("u4").tolist())
def test_a_float32_becomes_the_shortest_decimal(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    texts = pc.cast(pa.array(values), pa.string())
    wanted = pc.cast(texts, pa.float64()).to_numpy()
    found = shortest(values)
    same = (found.view(np.uint64) == wanted.view(np.uint64)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all(), values[~same]
