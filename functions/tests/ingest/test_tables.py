"""Tables in files of others: by their endings, else by how they begin."""

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.errors import SetupError
from stampede.ingest.tables import TableFile, first_of, names_in, read_table

ROWS = [{"id": 1, "RA": 10.5}, {"id": 2, "RA": 11.0}]


def table_file(path: Path) -> TableFile:
    return TableFile(str(path), partial(path.open, "rb"))


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.json", "parquet", "csv"])
def test_a_table_of_each_kind(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif name.endswith("json"):
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text("id,RA\n1,10.5\n2,11.0\n")
    file = table_file(path)
    assert names_in(file) == ["id", "RA"]
    assert read_table(file).to_pylist() == ROWS
    assert read_table(file, ["RA"]).to_pylist() == [{"RA": 10.5}, {"RA": 11.0}]


def test_a_column_is_found_by_its_first_name_in_any_case() -> None:
    assert first_of(("ra", "ra_deg"), ["RA_deg", "Ra", "dec"]) == "Ra"
    assert first_of(("ra", "ra_deg"), ["RA_deg", "dec"]) == "RA_deg"
    assert first_of(("ra", "ra_deg"), ["right_ascension"]) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("a.parquet", b"id\n1\n"), ("a.json", b"{"), ("a.json", b"3"), ("a.csv", b"")),
        *(("a", b"PAR1"), ("a.csv", b"id,id\n1,2\n"), ("a.csv", b"id\n1\n2,3\n"), ("a", None)),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SetupError, match=f"^{path} cannot be read: ."):
        read_table(table_file(path), ["id"])
