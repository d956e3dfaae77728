"""The tables that a query in ADQL may name, and TAP_SCHEMA, which describes them.

https://www.ivoa.net/documents/TAP/20190927/. A column has its unit, description (``doc``) and UCD
in its metadata.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from stampede.alerts.columns import CUTOUT_LOCATION, DETECTION
from stampede.alerts.columns import MOVING as OBSERVATION
from stampede.lookup.cone_search import FOUND
from stampede.read.formats.light_curves import MOVING_UCDS, UCDS

SCHEMA, TAP_SCHEMA, TAP_UPLOAD = "stampede", "tap_schema", "tap_upload"
VOTABLE_TYPES = {
    "bool": ("boolean", None),
    "int16": ("short", None),
    "int32": ("int", None),
    "int64": ("long", None),
    "float": ("float", None),
    "double": ("double", None),
    "string": ("char", "*"),
}
"""Datatype and arraysize in a VOTable of each type of a column."""
_UCDS = UCDS | {
    "object_id": "meta.id;src;meta.main",
    "detections": "meta.number",
    "first_mjd": "time.start",
    "last_mjd": "time.end",
    "alert_id": "meta.id;meta.main",
    "night": "time.epoch",
    "alerts": "meta.number",
    "cutouts": "meta.number",
}


class TapTable(NamedTuple):
    """A table: its name with the schema's before it, what a row is, its columns.

    Attributes
    ----------
    keys
        Columns by whose values rows are looked up; other conditions read the table.
    """

    name: str
    doc: str
    columns: pa.Schema
    keys: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The name without the schema."""
        return self.name.partition(".")[2]


def _described(fields: Iterator[pa.Field], ucds: Mapping[str, str] = _UCDS) -> pa.Schema:
    return pa.schema(
        [
            field.with_metadata({**(field.metadata or {}), "ucd": ucds.get(field.name, "")})
            for field in fields
        ]
    )


def _field(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    return pa.field(name, kind, True, {"doc": doc})


OBJECTS = TapTable(
    f"{SCHEMA}.objects",
    "an object: everything that was detected under one id; ra and dec are of one of its detections",
    _described(field for field in FOUND if field.name != "distance"),
    ("object_id",),
)
DETECTIONS = TapTable(
    f"{SCHEMA}.detections",
    "a point of a light curve: a detection, forced photometry or a limit; one version of each",
    _described(iter(DETECTION)),
    ("object_id",),
)
ALERTS = TapTable(
    f"{SCHEMA}.alerts",
    "an alert of which cutouts are stored; one version of each",
    _described(
        iter(
            [
                *(CUTOUT_LOCATION.field(name) for name in ("alert_id", "survey", "object_id")),
                CUTOUT_LOCATION.field("mjd").with_metadata({"doc": "MJD TAI", "unit": "d"}),
                _field("cutouts", pa.int32(), "how many images the survey sent with it"),
            ]
        )
    ),
    ("alert_id", "object_id"),
)
NIGHTS = TapTable(
    f"{SCHEMA}.nights",
    "the alerts of a survey in a night; many packs are sampled, then the number is an estimate",
    _described(
        iter(
            [
                _field("night", pa.int32(), "day of MJD (TAI)"),
                _field("survey", pa.string(), "lsst or ztf"),
                _field("alerts", pa.int64(), "how many alerts"),
                _field("exact", pa.bool_(), "whether they were counted, not estimated"),
            ]
        )
    ),
)
MOVING = TapTable(
    f"{SCHEMA}.moving",
    "an alert that shows a known body of the solar system; one version of each",
    _described(iter(OBSERVATION), MOVING_UCDS),
    ("designation",),
)
DATA = (OBJECTS, DETECTIONS, ALERTS, MOVING, NIGHTS)


def _of_tap_schema(name: str, doc: str, columns: Mapping[str, str]) -> TapTable:
    kinds = {"i": pa.int32(), "s": pa.string()}
    fields = (
        pa.field(column, kinds[text[0]], True, {"doc": text[2:]})
        for column, text in columns.items()
    )
    return TapTable(f"{TAP_SCHEMA}.{name}", doc, _described(fields))


_SELF = (
    _of_tap_schema(
        "schemas",
        "the schemas",
        {
            "schema_name": "s name",
            "utype": "s utype",
            "description": "s what it holds",
            "schema_index": "i order",
        },
    ),
    _of_tap_schema(
        "tables",
        "the tables",
        {
            "schema_name": "s schema",
            "table_name": "s name, as a query writes it",
            "table_type": "s table or view",
            "utype": "s utype",
            "description": "s what a row is",
            "table_index": "i order",
        },
    ),
    _of_tap_schema(
        "columns",
        "the columns",
        {
            "table_name": "s table",
            "column_name": "s name",
            "datatype": "s datatype of VOTable",
            "arraysize": "s arraysize of VOTable",
            "xtype": "s xtype",
            "size": "i deprecated: arraysize as a number",
            "description": "s what it is",
            "utype": "s utype",
            "unit": "s unit",
            "ucd": "s UCD",
            "indexed": "i 1 if rows are looked up by it",
            "principal": "i 1 if most users want it",
            "std": "i 1 if a standard defines it",
            "column_index": "i order",
        },
    ),
    _of_tap_schema(
        "keys",
        "joins by keys",
        {
            "key_id": "s id",
            "from_table": "s table",
            "target_table": "s table that it refers to",
            "description": "s what it is",
            "utype": "s utype",
        },
    ),
    _of_tap_schema(
        "key_columns",
        "the columns of keys",
        {
            "key_id": "s id",
            "from_column": "s column",
            "target_column": "s column that it refers to",
        },
    ),
)
TABLES = (*DATA, *_SELF)
KEYS = (
    ("1", DETECTIONS, "object_id", OBJECTS, "object_id", "the points of an object"),
    ("2", ALERTS, "object_id", OBJECTS, "object_id", "the alerts of an object"),
    ("3", DETECTIONS, "source_id", ALERTS, "alert_id", "the alert of a detection"),
    ("4", MOVING, "alert_id", ALERTS, "alert_id", "the alert that shows a body"),
    ("5", MOVING, "object_id", OBJECTS, "object_id", "the object of an alert of a body"),
)


def found(schema: str, name: str) -> TapTable | None:
    """The table of that name, in lower case; the schema may be left out (``""``)."""
    for table in TABLES:
        known = (table.name.partition(".")[0], "" if table in DATA else None)
        if table.short == name and schema in known:
            return table
    return None


def described() -> dict[str, pa.Table]:
    """The rows of each table of TAP_SCHEMA, by its name."""
    rows: dict[str, list[dict[str, object]]] = {
        "schemas": [
            {"schema_name": SCHEMA, "description": "alerts of sky surveys", "schema_index": 0},
            {
                "schema_name": TAP_SCHEMA,
                "description": "the tables' description",
                "schema_index": 1,
            },
        ],
        "tables": [*map(_table_row, range(len(TABLES)), TABLES)],
        "columns": [row for table in TABLES for row in _column_rows(table)],
        "keys": [
            {"key_id": key, "from_table": a.name, "target_table": b.name, "description": doc}
            for key, a, _, b, _, doc in KEYS
        ],
        "key_columns": [
            {"key_id": key, "from_column": a, "target_column": b} for key, _, a, _, b, _ in KEYS
        ],
    }
    return {
        table.name: pa.Table.from_pylist(rows[table.short], table.columns.remove_metadata())
        for table in _SELF
    }


def _table_row(index: int, table: TapTable) -> dict[str, object]:
    return {
        "schema_name": table.name.partition(".")[0],
        "table_name": table.name,
        "table_type": "table",
        "description": table.doc,
        "table_index": index,
    }


def _column_rows(table: TapTable) -> Iterator[dict[str, object]]:
    for index, field in enumerate(table.columns):
        metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
        kind, size = VOTABLE_TYPES[str(field.type)]
        yield {
            "table_name": table.name,
            "column_name": adql_name(field.name),
            "datatype": kind,
            "arraysize": size,
            "description": metadata.get("doc"),
            "unit": metadata.get("unit"),
            "ucd": metadata.get("ucd") or None,
            "indexed": int(field.name in table.keys),
            "principal": 1,
            "std": 0,
            "column_index": index,
        }


def adql_name(column: str) -> str:
    """A column's name as a query writes it: in quotes if it is a word of ADQL."""
    return f'"{column}"' if column in ("limit", "offset", "size") else column
