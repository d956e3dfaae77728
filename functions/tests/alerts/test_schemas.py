import io
import json
from importlib import resources

import fastavro
import pytest
from fastavro.schema import load_schema

from stampede.alerts import container
from stampede.alerts.framing import built_in_schema, writer_schema
from stampede.alerts.schemas import MOST_DOC, documentation, parsed, simplify
from stampede.alerts.surveys.rubin_schemas import NEWEST_RUBIN, RUBIN_VERSIONS, rubin_schemas
from stampede.errors import Undecodable
from tests.support.alerts import made_alerts

PUBLISHED = resources.files("lsst.alert.packet") / "schema"


def published(schema_id: int):
    return PUBLISHED / str(schema_id // 100) / str(schema_id % 100)


def test_every_published_version_is_built_in():
    folders = [
        (int(a.name), int(b.name))
        for a in PUBLISHED.iterdir()
        if a.name.isdigit()
        for b in a.iterdir()
        if b.name.isdigit()
    ]
    assert sorted(100 * major + minor for major, minor in folders) == RUBIN_VERSIONS
    assert [rubin_schemas()[version]["name"] for version in RUBIN_VERSIONS] == ["alert"] * 15
    major, minor = (PUBLISHED / "latest.txt").read_text().strip().split(".")
    assert 100 * int(major) + int(minor) == NEWEST_RUBIN


@pytest.mark.parametrize("schema_id", RUBIN_VERSIONS)
def test_decodes_as_the_published_schema_does(schema_id):
    folder = published(schema_id)
    name = f"lsst.v{schema_id // 100}_{schema_id % 100}.alert.avsc"
    theirs = load_schema(str(folder / name))
    ours = parsed(rubin_schemas()[schema_id])
    sample = (folder / "sample_data" / "fakeAlert.avro").read_bytes()
    (alert,) = fastavro.reader(io.BytesIO(sample))
    written = io.BytesIO()
    fastavro.schemaless_writer(written, theirs, alert)

    written.seek(0)
    by_theirs = fastavro.schemaless_reader(written, theirs)
    written.seek(0)
    by_ours = fastavro.schemaless_reader(written, ours)

    assert by_ours == by_theirs
    assert written.read() == b""
    again = io.BytesIO()
    fastavro.schemaless_writer(again, ours, alert)
    assert again.getvalue() == written.getvalue()


def test_of_fields_with_one_name_the_last_keeps_it():
    names = ["a", "b", "a", "a_2", "a"]
    schema = {"type": "record", "name": "x", "fields": [{"name": n, "type": "int"} for n in names]}
    assert [field["name"] for field in simplify(schema)["fields"]] == [
        "a_3",
        "b",
        "a_4",
        "a_2",
        "a",
    ]
    record = bytes([2, 4, 6, 8, 10])  # 1 to 5
    theirs = fastavro.schemaless_reader(io.BytesIO(record), fastavro.parse_schema(schema))
    ours = fastavro.schemaless_reader(io.BytesIO(record), parsed(simplify(schema)))
    assert theirs == {"a": 5, "b": 2, "a_2": 4}
    assert ours == theirs | {"a_3": 1, "a_4": 3}


def test_unknown_id_is_named():
    with pytest.raises(Undecodable, match="1102"):
        built_in_schema(1102)


def test_only_names_and_types_remain():
    text = json.dumps([rubin_schemas()[version] for version in RUBIN_VERSIONS])
    assert not any(f'"{key}":' in text for key in ("doc", "default", "namespace", "aliases"))
    assert "lsst.v" not in text
    assert text.count('{"type": "long", "logicalType": "timestamp-micros"}') == 12


def record(name, *fields, **more):
    return {
        "type": "record",
        "name": name,
        **more,
        "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(fields)],
    }


def test_a_type_is_defined_once_and_referred_to_by_its_simple_name():
    stamp = record("cutout", "bytes", namespace="ztf.alert")
    schema = record(
        "alert", stamp, "ztf.alert.cutout", ["null", "ztf.alert.cutout"], namespace="ztf", doc="x"
    )
    assert simplify(schema) == record(
        "alert", record("cutout", "bytes"), "cutout", ["null", "cutout"]
    )


def test_same_simple_name_in_two_namespaces_stays_two_types():
    schema = record(
        "a.alert",
        record("a.x", "int"),
        record("b.x", "string"),
        "a.x",
        "b.x",
        record("c.x_2", "long"),
        "c.x_2",
    )
    simple = simplify(schema)
    assert simple == record(
        "alert",
        record("x", "int"),
        record("x_2", "string"),
        "x",
        "x_2",
        record("x_2_2", "long"),
        "x_2_2",
    )
    fastavro.parse_schema(simple)


def test_a_nested_name_takes_the_namespace_around_it():
    schema = record(
        "ztf.alert",
        record("candidate", record("inner", "int")),
        record("other.candidate", "ztf.inner"),
        "candidate",
    )
    assert simplify(schema) == record(
        "alert",
        record("candidate", record("inner", "int")),
        record("candidate_2", "inner"),
        "candidate",
    )


def test_every_kind_of_type_survives():
    schema = record(
        "all",
        {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}},
        {"type": "map", "values": {"type": "double", "doc": "x"}},
        {"type": "enum", "name": "n.e", "symbols": ["a", "b"], "default": "a"},
        {"type": "fixed", "name": "n.f", "size": 4},
        {"type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ["null", {"type": "array", "items": "n.e"}],
    )
    assert simplify(schema) == record(
        "all",
        {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}},
        {"type": "map", "values": "double"},
        {"type": "enum", "name": "e", "symbols": ["a", "b"]},
        {"type": "fixed", "name": "f", "size": 4},
        "bytes",
        ["null", {"type": "array", "items": "e"}],
    )


@pytest.mark.parametrize(
    "schema",
    [
        None,
        7,
        {},
        "nothing",
        {"type": "record", "name": "a"},
        record("a", "b"),
        {"type": "array"},
        {"type": "record", "name": 3, "fields": []},
        {"type": "record", "name": "a", "fields": [1]},
    ],
)
def test_an_invalid_schema_is_undecodable(schema):
    with pytest.raises(Undecodable):
        fastavro.parse_schema(simplify(schema))


def test_the_decoder_gets_todays_schemas_as_they_are() -> None:
    """It reads the schema for every batch: a definition for each reference takes 0.3 ms more."""
    for schema in (*rubin_schemas().values(), made_alerts.ztf_schema()):
        assert writer_schema(schema).header == container.make_header(simplify(schema))


def described(name: str, kind: object, **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def test_the_documentation_is_that_of_the_fields() -> None:
    """By the names on the way; a unit of its own is added, that of an earlier type is found."""
    place = {
        **{"type": "record", "name": "place", "namespace": "sky"},
        "fields": [described("ra", "double", doc=" to  the\neast ", unit="deg")],
    }
    alert = {
        "type": "record",
        "name": "alert",
        "namespace": "survey",
        "fields": [
            described("history", {"type": "array", "items": place}, doc="earlier ones"),
            described("now", ["null", "sky.place"]),
            described("flux", "float", doc="of the source [nJy]", unit="nJy"),
            described("bare", "int"),
            described("odd", {"type": "enum", "name": "colour", "symbols": ["g"]}, doc=7, unit=[]),
            described("long", "string", doc="x" * 9999),
        ],
    }
    simplify(alert)
    assert documentation(alert) == {
        ("history",): "earlier ones",
        ("now", "ra"): "to the east [deg]",
        ("flux",): "of the source [nJy]",
        ("long",): "x" * MOST_DOC,
    }


def test_every_documented_field_is_a_field_of_the_schema() -> None:
    """Of what the survey publishes, which the built-in schemas leave out."""
    folder = published(NEWEST_RUBIN)
    (name,) = (each.name for each in folder.iterdir() if each.name.endswith(".alert.avsc"))
    theirs = load_schema(str(folder / name))
    found = documentation(theirs)
    own = {field["name"] for field in simplify(theirs)["fields"]}
    assert {path[0] for path in found} <= own
    assert sum(path[0] == "diaSource" for path in found) > 50
    assert documentation(rubin_schemas()[NEWEST_RUBIN]) == {}
