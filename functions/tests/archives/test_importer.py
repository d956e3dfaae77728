"""Files of archives become points of light curves."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.archives import importer as importer_module
from stampede.archives.importer import Importer, Store, files_in
from stampede.archives.layouts import Asked
from stampede.errors import SetupError
from stampede.store.objects.memory import MemoryObjects
from tests.support.archives import ONE, OTHER, write_ztf, ztf_row

LATEST = 61000.0
ROW = {"object_id": "J1", "mjd": 58000.5, "band": "g", "ra": 10.0, "dec": -5.0, "flux": 100.0}
MANY = {name: [value] * 2 for name, value in ROW.items()} | {"object_id": "J1", "ra": 10.0}


def imported(*files: Path, columns: tuple[str, ...] = (), bands: tuple[str, ...] = ()):
    """The points of files, and the tally."""
    importer = Importer("ztfdr24", Asked.of(None, columns, bands), LATEST)
    points = [point for some in importer.runs(files) for point in some.to_pylist()]
    assert importer.tally.points == len(points)
    return points, importer.tally


def write_json(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_of_a_data_release_of_ztf(tmp_path: Path) -> None:
    points, tally = imported(write_ztf(tmp_path / "ztf.parquet"))
    assert (tally.files, tally.points, tally.refused, tally.faults) == (1, 5, 0, [])
    assert [point["object_id"] for point in points] == [str(ONE)] * 3 + [str(OTHER)] * 2
    first = points[0]
    flux = 10 ** ((31.4 - 18.0) / 2.5)
    assert first.pop("total_flux") == pytest.approx(flux, rel=1e-6)
    error = flux * 0.03125 * np.log(10) / 2.5
    assert first.pop("total_flux_err") == pytest.approx(error, rel=1e-6)
    assert first.pop("mjd") == first.pop("processed_mjd") == 58300.25 + 37 / 86400
    assert first.pop("source_id") >> 20 == round((58300.25 * 86400 + 37) * 1000)
    assert {name: value for name, value in first.items() if value is not None} == {
        "object_id": str(ONE),
        "survey": "ztfdr24",
        "forced": False,
        "limit": False,
        "withdrawn": False,
        "band": "g",
        "ra": 250.25,
        "dec": 38.5,
        "detector": 12,
        "procstatus": "0",
    }
    assert [point["procstatus"] for point in points] == ["0", "0", "32768", "0", "32768"]
    assert {point["band"] for point in points[3:]} == {"r"}


def nested_records(path: Path) -> Path:
    """An object with a record of lists, as catalogues of HATS have it."""
    row = {**ROW, "lc": {name: [ROW[name]] * 2 for name in ("mjd", "band", "flux")}}
    for name in ("mjd", "band", "flux"):
        del row[name]
    pq.write_table(pa.Table.from_pylist([row]), path)
    return path


def lists_of_records(path: Path) -> Path:
    row = {name: ROW[name] for name in ("object_id", "ra", "dec")}
    row["detections"] = [{name: ROW[name] for name in ("mjd", "band", "flux")}] * 2
    pq.write_table(pa.Table.from_pylist([row]), path)
    return path


def json_records(path: Path) -> Path:
    row = {name: ROW[name] for name in ("object_id", "ra", "dec")}
    row["detections"] = [{name: ROW[name] for name in ("mjd", "band", "flux")}] * 2
    return write_json(path, row)


def rows_of_parquet(path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist([ROW, ROW]), path)
    return path


def document(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content, indent=1))
    return path


def lists_of(kind: Any, path: Path) -> Path:
    """An object with lists of another type of Arrow, and one whose lists are null."""
    none = {**MANY, "mjd": None, "band": None, "flux": None, "dec": None}
    table = pa.Table.from_pylist([MANY, none])
    columns = [
        column.cast(kind(column.type.value_type)) if pa.types.is_list(column.type) else column
        for column in table.columns
    ]
    pq.write_table(pa.table(columns, table.column_names), path)
    return path


def by_polars(path: Path) -> Path:
    rows = polars.DataFrame([ROW, ROW]).with_columns(polars.col("band").cast(polars.Categorical))
    rows.write_parquet(path)
    return path


SHAPES = {
    "large lists": partial(lists_of, pa.large_list),
    "lists of a fixed size": partial(lists_of, lambda kind: pa.list_(kind, 2)),
    "what polars writes": by_polars,
    "a row a measurement": rows_of_parquet,
    "a record of lists": nested_records,
    "a list of records": lists_of_records,
    "JSON, a line a measurement": lambda path: write_json(path, ROW, ROW),
    "JSON, a line an object": lambda path: write_json(path, MANY),
    "JSON, a list of records": json_records,
    "a JSON document of one object": lambda path: document(path, MANY),
    "a JSON document of a list": lambda path: document(path, [ROW, ROW]),
}


@pytest.mark.parametrize("write", SHAPES.values(), ids=[*SHAPES])
def test_a_point_is_the_same_in_every_shape_of_file(write, tmp_path: Path) -> None:
    points, tally = imported(write(tmp_path / "file"))
    assert (tally.faults, len(points)) == ([], 2)
    assert points[0] == points[1]
    [expected] = imported(write_json(tmp_path / "expected", ROW))[0]
    assert points[0] == expected


def test_ids_are_of_the_time_and_of_all_that_a_row_says(tmp_path: Path) -> None:
    others = [{**ROW, "flux": 101.0}, {**ROW, "band": "r"}, {**ROW, "mjd": 58000.5 + 1e-8}]
    points, _ = imported(write_json(tmp_path / "file", ROW, *others))
    ids = [point["source_id"] for point in points]
    assert len({*ids}) == 4
    assert {number >> 20 for number in ids[:3]} == {round((58000.5 * 86400 + 37) * 1000)}
    assert ids == [point["source_id"] for point in imported(tmp_path / "file")[0]]
    # For ever: another rule would store every archive twice.
    assert ids[0] == 5254669388481263167


def test_a_column_of_ids_is_taken(tmp_path: Path) -> None:
    file = write_json(tmp_path / "file", {**ROW, "det": 7})
    [point] = imported(file, columns=("source_id=det",))[0]
    assert point["source_id"] == 7


def test_difference_fluxes_bands_and_units(tmp_path: Path) -> None:
    row = {**ROW, "F": "cyan", "uJy": -2.5, "duJy": 0.5}
    del row["band"], row["flux"]
    file = write_json(tmp_path / "file", row)
    told = ("difference=uJy:uJy", "error=duJy", "band=F", "time=mjd:mjd-tai")
    [point] = imported(file, columns=told, bands=("cyan=c",))[0]
    assert (point["flux"], point["flux_err"], point["total_flux"]) == (-2500.0, 500.0, None)
    assert (point["band"], point["mjd"]) == ("c", 58000.5)


FAULTS = {
    "object_id": ("no id!", "object_id 'no id!' is not 1 to 64 letters, digits and _ . + -"),
    "mjd": (99999.0, f"mjd {99999.0 + 37 / 86400!r} is not MJD 33282 to 61000.0 (TAI)"),
    "ra": (360.5, "ra 360.5 is not from 0 to 360 degrees"),
    "dec": (None, "dec None is not from -90 to 90 degrees"),
    "band": ("q", "band 'q' is none of u g r i z y "),
    "flux": ("bright", "its flux 'bright' is not a number"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_the_rows_beside_it_are_stored(name: str, tmp_path: Path) -> None:
    value, why = FAULTS[name]
    file = write_json(tmp_path / "file", ROW, {**ROW, name: value}, {**ROW, "mjd": 58001.5})
    points, tally = imported(file)
    assert [point["mjd"] for point in points] == [58000.5 + 37 / 86400, 58001.5 + 37 / 86400]
    [fault] = map(str, tally.faults)
    assert fault.startswith(f"{file}, row 2: {why}")
    assert tally.refused == 1


NUMBERS = {
    "mag": ([18.0, 99.0], "99.0 is no magnitude"),
    "magerr": ([0.1, 99.0], "error 99.0 is no error of a magnitude"),
    "hmjd": ([58000.5, 2458000.5], "mjd 2458000.50042824"),
    "rcid": (1 << 40, "detector 1099511627776 is not from -2147483648 to 2147483647"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_cannot_be_is_a_fault(name: str, tmp_path: Path) -> None:
    value, why = NUMBERS[name]
    row = ztf_row(epochs=2) | {name: value}
    points, tally = imported(write_json(tmp_path / "file", row))
    assert len(points) == (0 if name == "rcid" else 1)
    assert str(tally.faults[-1]).startswith(f"{tmp_path / 'file'}, row 1: {why}")


@pytest.mark.parametrize("error", [-0.5, 1e39])
def test_an_error_of_a_flux_that_cannot_be(error: float, tmp_path: Path) -> None:
    points, tally = imported(write_json(tmp_path / "file", {**ROW, "flux_err": error}))
    assert points == []
    assert str(tally.faults[0]).endswith(f"row 1: error {error} is no error of a flux")


def test_an_id_of_a_measurement_is_positive(tmp_path: Path) -> None:
    file = write_json(tmp_path / "file", {**ROW, "det": 0}, {**ROW, "det": None})
    points, tally = imported(file, columns=("source_id=det",))
    assert len(points) == 1  # without an id it gets one
    assert "row 1: source_id 0 is not from 1 to " in str(tally.faults[0])


def test_no_value_is_no_fault(tmp_path: Path) -> None:
    rows = [ztf_row(mag=[18.0, None, float("nan")])]
    points, tally = imported(write_ztf(tmp_path / "ztf.parquet", rows))
    assert (len(points), tally.unmeasured, tally.refused) == (1, 2, 0)


def no_number(path: Path) -> None:
    pq.write_table(pa.table({**{name: [value] for name, value in ROW.items()}, "ra": ["10"]}), path)


def float_ids(path: Path) -> None:
    row = {name: [value] for name, value in ROW.items()} | {"object_id": [1e17]}
    pq.write_table(pa.table(row), path)


FILES = {
    "not JSON": (lambda path: path.write_text("hello"), "it is neither Parquet nor JSON: "),
    "empty": (lambda path: path.write_text(""), "it is neither Parquet nor JSON: "),
    "gzip": (lambda path: path.write_bytes(b"\x1f\x8b\x08"), "it is compressed by gzip: unpack"),
    "cut off": (lambda path: path.write_bytes(b"PAR1\0\0"), "it is not a Parquet file: "),
    "text for numbers": (no_number, "its column ra holds string, not numbers"),
    "floats for ids": (float_ids, "its column object_id holds double, not text or integers"),
    "no objects": (lambda path: path.write_text("[1, 2]"), "it has no object of JSON: "),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_a_fault_is_named_and_the_next_is_read(name: str, tmp_path: Path) -> None:
    write, why = FILES[name]
    write(file := tmp_path / "file")
    points, tally = imported(file, write_json(tmp_path / "good", ROW))
    assert len(points) == 1
    [fault] = map(str, tally.faults)
    assert fault.startswith(f"{file}: {why}")


def test_a_damaged_row_group_is_a_fault_and_the_others_are_stored(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    rows = [{**ROW, "flux": float(number)} for number in range(2000)]
    pq.write_table(
        pa.Table.from_pylist(rows), file, write_page_checksum=True, row_group_size=500,
        compression="none", use_dictionary=False,
    )  # fmt: skip
    data = bytearray(file.read_bytes())
    at = data.index(np.float64(1600.0).tobytes())
    data[at] ^= 1
    file.write_bytes(data)
    points, tally = imported(file)
    assert {round(point["total_flux"]) for point in points} == {*range(1500)}
    [fault] = map(str, tally.faults)
    assert f"{file}, row 1,501: rows of it up to 2,000 cannot be read: " in fault


def test_runs_are_cut_and_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer_module, "RUN_POINTS", 1000)
    rows = [ztf_row(number, 4) for number in range(1, 601)]
    file = write_ztf(tmp_path / "ztf.parquet", rows)
    objects, keys = MemoryObjects(), []
    for _ in range(2):
        importer = Importer("ztfdr24", Asked.of(None, [], []), LATEST)
        sizes = []
        for some in importer.runs([file]):
            Store.of(objects).append(some)
            sizes.append(some.num_rows)
        keys.append({info.key for info in objects.list("")})
    assert sizes == [1000, 1000, 400]
    assert keys[0] == keys[1]
    assert len(keys[0]) == 6


def test_files_of_folders(tmp_path: Path) -> None:
    for name in ("b.parquet", "a/c.jsonl", "a/notes.txt", "a/d.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = files_in([tmp_path, tmp_path / "a/notes.txt"])
    assert [path.name for path in found] == ["c.jsonl", "d.json", "b.parquet", "notes.txt"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SetupError, match="has no file that ends in"):
        files_in([tmp_path / "empty"])
