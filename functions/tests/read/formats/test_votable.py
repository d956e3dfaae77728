"""A VOTable of any light curve says what astropy's says, and errors are VOTables."""

import warnings
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from astropy.io.votable import parse, tree
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.columns import DETECTION
from stampede.read.formats.light_curves import to_votable, with_magnitudes
from stampede.read.formats.votable import error_document
from tests.support.read import astropy_votable

# Of all characters those that XML has; a carriage return comes below.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="￾￿"))
VALUES = {
    "string": TEXTS,
    "bool": st.booleans(),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
}
ROWS = st.fixed_dictionaries(
    {
        field.name: VALUES[str(field.type)] | st.none()
        if field.nullable
        else VALUES[str(field.type)]
        for field in DETECTION
    }
)


def parsed(document: bytes) -> tree.VOTableFile:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return parse(BytesIO(document), verify="exception")


@given(st.lists(ROWS, max_size=4), st.booleans())
def test_it_says_what_astropy_says(rows: list[dict], magnitudes: bool) -> None:
    curve = pa.Table.from_pylist(rows, DETECTION)
    curve = with_magnitudes(curve) if magnitudes else curve
    ours, theirs = parsed(to_votable(curve)), parsed(astropy_votable.document(curve))
    assert described(ours) == described(theirs)
    one, other = ours.get_first_table().array, theirs.get_first_table().array
    assert one.dtype == other.dtype
    for name in curve.column_names:
        assert one.mask[name].tolist() == other.mask[name].tolist(), name
        np.testing.assert_array_equal(one.data[name], other.data[name], name)


def described(file: tree.VOTableFile) -> list:
    """All that a document says besides its rows."""
    (resource,) = file.resources
    (table,) = resource.tables
    (place,), (time,) = resource.coordinate_systems, resource.time_systems
    return [
        (file.version, resource.type, table.name),
        [(info.name, info.value) for info in resource.infos],
        (place.ID, place.system),
        (time.ID, time.timescale, time.refposition, time.timeorigin),
        [
            (field.name, field.datatype, field.arraysize, field.unit, field.ucd, field.ref)
            for field in table.fields
        ],
        [" ".join(str(field.description).split()) for field in table.fields],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "a\rb\tc\nd": "a\rb\tc\nd",
        "\0\1\x1f￾￿]]>": "�" * 5 + "]]>",
        "&<>\"'&amp;": "&<>\"'&amp;",
    }.items(),
)
def test_every_character_is_one_of_xml(text: str, expected: str) -> None:
    row = {field.name: None for field in DETECTION} | {"procstatus": text}
    row |= dict(object_id="1", survey="ztf", forced=True, limit=False, source_id=1, mjd=6e4)
    row |= dict(withdrawn=False, processed_mjd=6e4)
    table = parsed(to_votable(pa.Table.from_pylist([row], DETECTION))).get_first_table()
    assert table.array["procstatus"].tolist() == [expected]


@pytest.mark.parametrize("message", ["no such place", "\0\ud800 <&\"'>"])
def test_an_error_is_a_whole_votable(message: str) -> None:
    file = parsed(error_document(message))
    said = message.replace("\0", "�").replace("\ud800", "�")
    assert [(info.name, info.value) for info in file.infos] == [("Error", said)]
    (resource,) = file.resources
    (status,) = resource.infos
    assert (resource.type, status.name, status.value) == ("results", "QUERY_STATUS", "ERROR")
    assert status.content == said
