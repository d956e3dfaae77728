"""A VOTable written row by row, in constant memory, with the UCDs of a Simple Cone Search.

Simple Cone Search 1.03: https://www.ivoa.net/documents/latest/ConeSearch.html. It demands the
UCDs of 1998 for id and position, and an INFO named ``Error`` in place of rows.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa

from stampede import compute as pc

MEDIA_TYPE = "application/x-votable+xml"
UCDS = {
    "object_id": "ID_MAIN",
    "survey": "meta.curation",
    "ra": "POS_EQ_RA_MAIN",
    "dec": "POS_EQ_DEC_MAIN",
    "distance": "pos.angDistance",
    "detections": "meta.number",
    "first_mjd": "time.start",
    "last_mjd": "time.end",
}
_TYPES = {"string": 'datatype="char" arraysize="*"', "double": 'datatype="double"'}
_TYPES |= {"int32": 'datatype="int"', "int64": 'datatype="long"'}
_BEGIN = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">\n'
)


class VOTableWriter:
    """Rows of `schema` as a VOTable with TABLEDATA."""

    media_type = MEDIA_TYPE

    def __init__(self, schema: pa.Schema) -> None:
        fields = "".join(map(_field, schema))
        self._before = (
            f'{_BEGIN}<RESOURCE type="results">\n<INFO name="QUERY_STATUS" value="OK"/>\n'
            f'<COOSYS ID="icrs" system="ICRS"/>\n<TABLE name="positions">\n{fields}'
            "<DATA><TABLEDATA>\n"
        )

    def add(self, found: pa.Table) -> bytes:
        """The bytes of some rows."""
        before, self._before = self._before, ""
        if not found.num_rows:
            return before.encode()
        cells = [_escaped(column) for column in found.columns]
        rows = pc.binary_join_element_wise(*cells, "</TD><TD>", null_handling="replace")
        lines = pc.binary_join_element_wise("<TR><TD>", rows, "</TD></TR>\n", "")
        return (before + "".join(lines.to_pylist())).encode()

    def end(self, missing: object = None, incomplete: Sequence[str] = ()) -> bytes:
        """The end of the document; `incomplete` becomes an INFO."""
        why = "".join(
            f"<INFO name='incomplete' value={quoteattr(reason)}/>\n" for reason in incomplete
        )
        before, self._before = self._before, ""
        return f"{before}</TABLEDATA></DATA></TABLE>\n{why}</RESOURCE>\n</VOTABLE>\n".encode()


def _escaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as text in which no character is XML's."""
    text = pc.cast(column, pa.string())
    if pa.types.is_string(column.type):
        for character, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = pc.replace_substring(text, character, name)
    return text


def error_document(message: str) -> bytes:
    """The answer to a cone search that cannot be answered."""
    return (
        f'{_BEGIN}<INFO name="Error" ID="Error" value={quoteattr(message)}/>\n</VOTABLE>\n'.encode()
    )


def _field(field: pa.Field) -> str:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    unit = f' unit="{metadata["unit"]}"' if "unit" in metadata else ""
    where = ' ref="icrs"' if field.name in ("ra", "dec") else ""
    doc = escape(metadata.get("doc", ""))
    kind = f'ucd="{UCDS[field.name]}" {_TYPES[str(field.type)]}'
    return (
        f'<FIELD name="{field.name}" {kind}{unit}{where}><DESCRIPTION>{doc}</DESCRIPTION></FIELD>\n'
    )
