"""VOTable 1.4, written row by row, in constant memory, from Arrow's columns.

https://www.ivoa.net/documents/VOTable/20191021/. Stampede writes every VOTable itself: other
writers are slower, or write beyond their memory (docs/adr/0054-native-code.md).
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa

from stampede.read.formats.completeness import COMPLETE, Completeness
from stampede.runtime import lazy_arrow_compute as pc

MEDIA_TYPE = "application/x-votable+xml"
_TYPES = {
    "bool": "boolean",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
}
_BEGIN = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">\n'
)
_SYSTEMS = (
    '<COOSYS ID="icrs" system="ICRS"/>\n'
    '<TIMESYS ID="tai" timescale="TAI" refposition="TOPOCENTER" timeorigin="MJD-origin"/>\n'
)
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x{FFFE}\x{FFFF}]"
_NOT_XML_IN_PYTHON = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REPLACEMENT = "\ufffd"


class Service(NamedTuple):
    """A service that answers about each row of a table (DataLink 1.1, 4).

    Attributes
    ----------
    url
        Its address, absolute.
    column
        The column whose values are its parameter ``ID``.
    """

    name: str
    description: str
    url: str
    column: str
    standard_id: str
    media_type: str

    def element(self) -> str:
        """The descriptor in XML, which refers to the field whose ID is `column`."""
        values = {
            "standardID": self.standard_id,
            "accessURL": self.url,
            "contentType": self.media_type,
        }
        text = 'datatype="char" arraysize="*"'
        params = "".join(
            f"<PARAM name={_attribute(name)} {text} value={_attribute(value)}/>\n"
            for name, value in values.items()
        )
        return (
            f'<RESOURCE type="meta" utype="adhoc:service" name={_attribute(self.name)}>\n'
            f"<DESCRIPTION>{_text(self.description)}</DESCRIPTION>\n{params}"
            f'<GROUP name="inputParams">\n<PARAM name="ID" {text} value="" ref="{self.column}"/>\n'
            "</GROUP>\n</RESOURCE>\n"
        )


class VOTableWriter:
    """Rows as a VOTable with TABLEDATA; COOSYS and TIMESYS say what positions and times are.

    Parameters
    ----------
    name
        Name of the table.
    schema
        Its columns; their metadata has ``unit`` and ``doc``, the description.
    ucds
        The UCD of each column.
    text
        Data type of texts: ``unicodeChar``, or ``char`` if they are ASCII.
    services
        Those that answer about each row.
    infos
        More about the table: values by name.

    Attributes
    ----------
    overflow
        There are more rows than a client wanted (DALI 1.1): set it before the end.
    """

    media_type = MEDIA_TYPE
    has_end = False

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        ucds: Mapping[str, str],
        text: str = "unicodeChar",
        services: Sequence[Service] = (),
        infos: Mapping[str, str] = {},
    ) -> None:
        self.overflow = False
        self._services = "".join(service.element() for service in services)
        named = {service.column for service in services}
        fields = "".join(
            _field(field, ucds[field.name], text, field.name in named) for field in schema
        )
        status = {"QUERY_STATUS": "OK", **infos}
        said = "".join(
            f"<INFO name={_attribute(key)} value={_attribute(value)}/>\n"
            for key, value in status.items()
        )
        self._before = (
            f'{_BEGIN}<RESOURCE type="results">\n{said}'
            f'{_SYSTEMS}<TABLE name="{name}">\n{fields}<DATA><TABLEDATA>\n'
        )

    def add(self, found: pa.Table) -> bytes:
        """The bytes of some rows."""
        before, self._before = self._before, ""
        if not found.num_rows:
            return before.encode()
        cells = [_cells(column) for column in found.columns]
        rows = pc.binary_join_element_wise(*cells, "</TD><TD>", null_handling="replace")
        lines = pc.binary_join_element_wise("<TR><TD>", rows, "</TD></TR>\n", "")
        return (before + "".join(lines.to_pylist())).encode()

    def end(self, completeness: Completeness = COMPLETE) -> bytes:
        """The end of the document; why it may lack rows becomes an INFO."""
        why = '<INFO name="QUERY_STATUS" value="OVERFLOW"/>\n' if self.overflow else ""
        why += "".join(
            f'<INFO name="incomplete" value={_attribute(reason)}/>\n'
            for reason in completeness.reasons
        )
        before, self._before = self._before, ""
        end = f"</TABLEDATA></DATA></TABLE>\n{why}</RESOURCE>\n{self._services}</VOTABLE>\n"
        return (before + end).encode()


def error_document(message: str) -> bytes:
    """The response to a cone search that cannot be answered.

    Simple Cone Search 1.03 asks for an INFO named ``Error`` below the root, VOTable for a RESOURCE,
    DALI 1.1 for an INFO named ``QUERY_STATUS`` in it.
    """
    error = f'<INFO name="Error" ID="Error" value={_attribute(message)}/>\n'
    status = f'<INFO name="QUERY_STATUS" value="ERROR">{_text(message)}</INFO>\n'
    resource = f'<RESOURCE type="results">\n{status}</RESOURCE>\n'
    return f"{_BEGIN}{error}{resource}</VOTABLE>\n".encode()


def _field(field: pa.Field, ucd: str, text: str, named: bool) -> str:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    is_text = pa.types.is_string(field.type)
    kind = (
        f'datatype="{text}" arraysize="*"' if is_text else f'datatype="{_TYPES[str(field.type)]}"'
    )
    unit = f' unit="{metadata["unit"]}"' if "unit" in metadata else ""
    system = "tai" if field.name.endswith("mjd") else "icrs" if field.name in ("ra", "dec") else ""
    reference = f' ref="{system}"' if system else ""
    description = f"<DESCRIPTION>{_text(metadata.get('doc', ''))}</DESCRIPTION>"
    name = _attribute(field.name)  # in a result of ADQL it is a stranger's
    name = f"ID={name} name={name}" if named else f"name={name}"
    ucd = f' ucd="{ucd}"' if ucd else ""
    return f"<FIELD {name}{ucd} {kind}{unit}{reference}>{description}</FIELD>\n"


def _cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as text for XML; null and NaN are null, which an empty cell is."""
    text = pc.cast(column, pa.string())
    if pa.types.is_string(column.type):
        text = pc.replace_substring_regex(text, _NOT_XML, _REPLACEMENT)
        for character, name in _MARKUP.items():
            text = pc.replace_substring(text, character, name)
    elif pa.types.is_floating(column.type):
        infinity = pc.if_else(pc.greater(column, 0), "+Inf", "-Inf")
        infinity = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.string()), infinity)
        text = pc.if_else(pc.is_finite(column), text, infinity)
    return text


def _text(text: str) -> str:
    return escape(_NOT_XML_IN_PYTHON.sub(_REPLACEMENT, text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML_IN_PYTHON.sub(_REPLACEMENT, text))
