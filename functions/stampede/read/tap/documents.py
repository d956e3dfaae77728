"""What a service of TAP says of itself: its capabilities, tables and whether it is up (VOSI 1.1).

https://www.ivoa.net/documents/VOSI/20170524/, https://www.ivoa.net/documents/TAPRegExt/20120827/.
"""

from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa

from stampede.read.tap.tables import KEYS, TABLES, VOTABLE_TYPES, TapTable, adql_name

MEDIA_TYPE = "text/xml"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMES = (
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xmlns:vr="http://www.ivoa.net/xml/VOResource/v1.0" '
    'xmlns:vs="http://www.ivoa.net/xml/VODataService/v1.1"'
)
_TAP = 'xmlns:tr="http://www.ivoa.net/xml/TAPRegExt/v1.0"'
_VOSI = "ivo://ivoa.net/std/VOSI"
_FEATURES = "ivo://ivoa.net/std/TAPRegExt#features"
_GEOMETRY = ("POINT", "CIRCLE", "CONTAINS", "INTERSECTS", "DISTANCE", "COORD1", "COORD2")
_FORMATS = {
    "votable": ("application/x-votable+xml", "ivo://ivoa.net/std/TAPRegExt#output-votable-td"),
    "csv": ("text/csv", ""),
    "parquet": ("application/vnd.apache.parquet", ""),
    "arrow": ("application/vnd.apache.arrow.stream", ""),
}


class Bounds(NamedTuple):
    """What one query may take, for clients to see."""

    seconds: float
    rows: int
    upload_rows: int


def capabilities(base: str, bounds: Bounds) -> bytes:
    """The document of `/tap/capabilities`; `base` is the URL of the service."""
    of_tap = [_interface(base, "ParamHTTP", 'role="std" version="1.1"'), _language(), _formats()]
    of_tap.append(_limits(bounds))
    parts = [
        f'<capability standardID="ivo://ivoa.net/std/TAP" xsi:type="tr:TableAccess">'
        f"{''.join(of_tap)}</capability>"
    ]
    for name in ("capabilities", "availability", "tables-1.1"):
        url = f"{base}/{name.partition('-')[0]}"
        parts.append(
            f'<capability standardID="{_VOSI}#{name}">{_interface(url, "ParamHTTP")}</capability>'
        )
    body = "\n".join(parts)
    names = f'xmlns:vosi="http://www.ivoa.net/xml/VOSICapabilities/v1.0" {_NAMES} {_TAP}'
    return f"{_XML}<vosi:capabilities {names}>\n{body}\n</vosi:capabilities>\n".encode()


def _interface(url: str, kind: str, more: str = "") -> str:
    use = "base" if more else "full"
    return (
        f'<interface xsi:type="vs:{kind}" {more}>'
        f'<accessURL use="{use}">{escape(url)}</accessURL></interface>'
    )


def _language() -> str:
    features = "".join(f"<feature><form>{name}</form></feature>" for name in _GEOMETRY)
    versions = "".join(
        f'<version ivo-id="ivo://ivoa.net/std/ADQL#v{version}">{version}</version>'
        for version in ("2.0", "2.1")
    )
    return (
        f"<language><name>ADQL</name>{versions}<description>a subset of ADQL 2.1</description>"
        f'<languageFeatures type="{_FEATURES}-adqlgeo">{features}</languageFeatures></language>'
    )


def _formats() -> str:
    found = ""
    for alias, (media_type, standard) in _FORMATS.items():
        of = f' ivo-id="{standard}"' if standard else ""
        found += f"<outputFormat{of}><mime>{media_type}</mime><alias>{alias}</alias></outputFormat>"
    return f'{found}<uploadMethod ivo-id="ivo://ivoa.net/std/TAPRegExt#upload-inline"/>'


def _limits(bounds: Bounds) -> str:
    seconds = f"<executionDuration><default>{bounds.seconds:.0f}</default></executionDuration>"
    rows = "".join(f'<{name} unit="row">{bounds.rows}</{name}>' for name in ("default", "hard"))
    upload = f'<hard unit="row">{bounds.upload_rows}</hard>'
    return f"{seconds}<outputLimit>{rows}</outputLimit><uploadLimit>{upload}</uploadLimit>"


def availability(up: bool, why: str = "") -> bytes:
    """The document of `/tap/availability`."""
    note = f"<note>{escape(why)}</note>" if why else ""
    names = 'xmlns="http://www.ivoa.net/xml/VOSIAvailability/v1.0"'
    state = f"<available>{str(up).lower()}</available>{note}"
    return f"{_XML}<availability {names}>{state}</availability>\n".encode()


def tables(only: str = "") -> bytes:
    """The document of `/tap/tables`, or that of one table by its full name, if there is one."""
    names = f'xmlns:vosi="http://www.ivoa.net/xml/VOSITables/v1.0" {_NAMES}'
    if only:
        [table] = [table for table in TABLES if table.name == only]
        body = _table(table, f'vosi:table xsi:type="vs:Table" {names}')
        return f"{_XML}{body}\n".encode()
    schemas: dict[str, str] = {}
    for table in TABLES:
        schema = table.name.partition(".")[0]
        schemas[schema] = schemas.get(schema, "") + _table(table, "table")
    body = "\n".join(
        f"<schema><name>{schema}</name>{text}</schema>" for schema, text in schemas.items()
    )
    return f"{_XML}<vosi:tableset {names}>\n{body}\n</vosi:tableset>\n".encode()


def _table(table: TapTable, tag: str) -> str:
    columns = "".join(_column(field, table) for field in table.columns)
    keys = "".join(
        f"<foreignKey><targetTable>{to.name}</targetTable><fkColumn><fromColumn>{column}"
        f"</fromColumn><targetColumn>{target}</targetColumn></fkColumn></foreignKey>"
        for _, of, column, to, target, _ in KEYS
        if of is table
    )
    what = f"<name>{table.name}</name><description>{escape(table.doc)}</description>"
    return f"<{tag}>{what}{columns}{keys}</{tag.partition(' ')[0]}>"


def _column(field: pa.Field, table: TapTable) -> str:
    metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
    kind, size = VOTABLE_TYPES[str(field.type)]
    array = f" arraysize={quoteattr(size)}" if size else ""
    indexed = "<flag>indexed</flag>" if field.name in table.keys else ""
    unit = f"<unit>{escape(metadata['unit'])}</unit>" if metadata.get("unit") else ""
    ucd = f"<ucd>{escape(metadata['ucd'])}</ucd>" if metadata.get("ucd") else ""
    return (
        f"<column><name>{escape(adql_name(field.name))}</name>"
        f"<description>{escape(metadata.get('doc', ''))}</description>{unit}{ucd}"
        f'<dataType xsi:type="vs:VOTableType"{array}>{kind}</dataType>{indexed}</column>'
    )
