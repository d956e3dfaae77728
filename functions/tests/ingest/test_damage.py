"""Files that are cut off, flipped or hostile: what is whole is read, the rest is one fault."""

import bz2
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.alerts import container
from stampede.errors import SetupError
from stampede.ingest import files
from stampede.ingest.records import FileAlert
from stampede.ingest.stream import Stream
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records

SCHEMA = made_alerts.ztf_schema()
RECORDS = [made_alerts.ztf_record(candid) for candid in range(1, 9)]
LIMIT = 40_000


def blocks(codec: str = "null", per_block: int = 2, records: list[dict] = RECORDS) -> bytes:
    """A container with a few records in each block."""
    out = io.BytesIO()
    writer = fastavro.write.Writer(out, fastavro.parse_schema(SCHEMA), codec, sync_interval=1 << 30)
    for number, record in enumerate(records, 1):
        writer.write(record)
        if number % per_block == 0:
            writer.dump()
    if writer.block_count:
        writer.dump()
    return out.getvalue()


def read(path: Path, data: bytes, limit: int = LIMIT) -> tuple[list[FileAlert], list[FileAlert]]:
    """The alerts that can be read, and the faults."""
    path.write_bytes(data)
    found = list(files.read([path], limit))
    assert all(len(each.data) <= 2 * limit for each in found)
    return [each for each in found if not each.fault], [each for each in found if each.fault]


def candid(alert: FileAlert) -> int:
    (record,) = records(alert.data)
    (whole,) = records(made_alerts.ztf_alert(record["candid"]))
    assert record == whole
    return record["candid"]


CONTAINERS = {codec: blocks(codec) for codec in ("null", "deflate", "snappy")}
HEADERS = {codec: container.read_header(data).length + 16 for codec, data in CONTAINERS.items()}


@pytest.mark.parametrize("codec", CONTAINERS)
@given(st.data())
@settings(max_examples=3 * settings.default.max_examples // 5, deadline=None)
def test_a_container_cut_off_anywhere_gives_its_whole_blocks(
    codec: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole, header = CONTAINERS[codec], HEADERS[codec]
    path = tmp_path_factory.mktemp("cut") / "night.avro"
    cut = data.draw(st.integers(header + 1, len(whole) - 1))
    good, faults = read(path, whole[:cut])
    if not faults and good and good[0].data == whole[:cut]:
        return  # nothing in it is whole: the function says what is wrong
    found = [candid(each) for each in good]
    assert found == list(range(1, len(found) + 1))
    sync = whole[header - 16 : header]
    assert len(found) == 2 * whole[header:cut].count(sync)
    assert len(faults) <= 1  # none if it is cut off between two blocks
    for fault in faults:
        assert str(path) in fault.name
        assert f"of {path} on" in fault.fault


@pytest.mark.parametrize("codec", CONTAINERS)
@given(st.data())
@settings(max_examples=3 * settings.default.max_examples // 5, deadline=None)
def test_one_flipped_bit_costs_two_blocks_at_most(
    codec: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The block that it is in; with its sync marker, the next one too."""
    flipped = bytearray(CONTAINERS[codec])
    flipped[data.draw(st.integers(HEADERS[codec], len(flipped) - 1))] ^= 1 << data.draw(
        st.integers(0, 7)
    )
    good, faults = read(tmp_path_factory.mktemp("flip") / "night.avro", bytes(flipped))
    found = set()
    for each in good:
        with suppress(Exception, AssertionError):  # a flip within a record: a function judges it
            found.add(candid(each))
    assert len(found) >= len(RECORDS) - 4
    assert len(faults) <= 2


def test_a_block_too_long_to_hold_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "night.avro"
    records = [made_alerts.ztf_record(n, objectId="x" * 3000) for n in range(1, 60)]
    for codec in ("null", "deflate", "snappy"):
        whole = blocks(codec, 1000, records)
        path.write_bytes(whole)
        found = list(files.read([path], 1_000))
        assert [each.fault for each in found] == [None] * 59
        cut = whole[:-20]
        good, (fault,) = read(tmp_path / "night.avro", cut, limit=1_000)
        assert not good
        assert "the container is cut off within a block" in fault.fault


@pytest.mark.long
def test_300_mb_of_anything_is_one_fault_and_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "night.avro"
    with path.open("wb") as file:
        file.write(b"Obj?")
        file.truncate(300 << 20)
    (found,) = files.read([path])
    assert len(found.data) == 16 << 20
    assert "has more than 16,777,216 bytes" in found.fault
    bomb = tmp_path / "bomb.avro.bz2"
    bomb.write_bytes(bz2.compress(bytes(100 << 20)))
    (found,) = files.read([bomb])
    assert found.data == bomb.read_bytes()
    assert "has more than 16,777,216 bytes" in found.fault


def test_blocks_without_records_do_not_go_on_for_ever(tmp_path: Path) -> None:
    """A sync marker of zeros makes each 18 zeros an empty block."""
    data = blocks(records=RECORDS[:2])
    sync = data[-16:]
    good, (fault,) = read(tmp_path / "a.avro", data + 5_000 * (b"\0\0" + sync))
    assert len(good) == 2
    assert "more than 1,000 blocks in a row have no record" in fault.fault
    good, faults = read(tmp_path / "a.avro", data + 500 * (b"\0\0" + sync))
    assert (len(good), faults) == (2, [])


def test_a_long_container_that_is_cut_off(tmp_path: Path) -> None:
    """As long as no function takes it in one piece."""
    records = [made_alerts.ztf_record(n, objectId=f"{n}" * 2000) for n in range(1, 500)]
    whole = blocks("null", 4, records)
    good, faults = read(tmp_path / "night.avro", whole[:-1000])
    assert len(good) == 496
    (fault,) = faults
    assert "the container is cut off within a block" in fault.fault


NOTHINGS = {"name": "x", "type": {"type": "array", "items": "null"}}


@pytest.mark.parametrize(
    "schema",
    [
        {**SCHEMA, "fields": [*SCHEMA["fields"], NOTHINGS]},
        {"type": "record", "name": "r", "fields": [{"name": "r", "type": ["null", "r"]}]},
    ],
    ids=["items of no bytes", "a type within itself"],
)
def test_a_schema_without_bounds_is_not_followed(tmp_path: Path, schema: dict) -> None:
    """A few bytes could claim 2^60 items, or a million levels."""
    if schema["name"] == "r":
        body = b"\x02" * 1_000_000
    else:
        out = io.BytesIO()
        good = fastavro.parse_schema(SCHEMA)
        fastavro.schemaless_writer(out, good, RECORDS[0])
        body = out.getvalue() + container.varint(1 << 60)
    head = container.make_header(schema)
    data = head + container.varint(2) + container.varint(len(body)) + body + head[-16:]
    (found,), faults = read(tmp_path / "hostile.avro", data, limit=2_000_000)
    assert found.data == data  # the function refuses it by name
    assert not faults


def tar_of(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


ALERTS = [made_alerts.ztf_alert(n) for n in range(1, 5)]
TAR = tar_of(*((f"night/{n}.avro", alert) for n, alert in enumerate(ALERTS)))
SECOND = TAR.index(b"night/1.avro")


def spoilt(data: bytes, at: int) -> bytes:
    return data[:at] + b"\xff" * 8 + data[at + 8 :]


@pytest.mark.parametrize(
    ("damage", "whole"),
    [
        (lambda data: data[: len(data) // 2], range(1, 4)),
        (lambda data: data[:SECOND], [1]),
        (lambda data: data[: SECOND + 100], [1]),
        (lambda data: data[: SECOND + 700], [1]),
        (lambda data: spoilt(data, SECOND), [1]),
        (lambda data: b"", [0]),
        (lambda data: b"no tar", [0]),
    ],
    ids=["cut", "between members", "in a header", "in a member", "header", "empty", "other"],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["tar", "tar.gz"])
def test_a_damaged_tar_gives_what_could_be_read_and_one_fault(
    tmp_path: Path, damage: Callable, whole: list[int], compress: Callable
) -> None:
    """Reading never ends early in silence: nothing would show that alerts are missing."""
    path = tmp_path / "night.tar"
    good, faults = read(path, compress(damage(TAR)))
    assert [each.data for each in good] == ALERTS[: len(good)]
    assert len(good) in whole
    (fault,) = faults
    assert str(path) in fault.name
    assert str(path) in fault.fault


def test_files_that_were_joined_are_read_to_their_end(tmp_path: Path) -> None:
    """As by `cat`: what follows the end of the first must not be left out in silence."""
    good, faults = read(tmp_path / "night.tar", TAR + TAR)
    assert ([each.data for each in good], faults) == (ALERTS + ALERTS, [])
    good, (fault,) = read(tmp_path / "night.tar", TAR + b"no tar" * 1000)
    assert [each.data for each in good] == ALERTS
    assert "night.tar cannot be read to its end" in fault.fault
    joined = CONTAINERS["null"] + CONTAINERS["deflate"] + ALERTS[0]
    good, faults = read(tmp_path / "night.avro", joined)
    assert ([candid(each) for each in good], faults) == ([*range(1, 9), *range(1, 9), 1], [])
    good, (fault,) = read(tmp_path / "night.avro", joined + b"Obj\x01 and no more")
    assert len(good) == 17
    assert f"from byte {len(joined):,} of" in fault.fault


@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
def test_a_damaged_gzipped_tar_is_one_fault(tmp_path: Path, at: float) -> None:
    data = gzip.compress(TAR)
    at = int(at * len(data))
    for damaged in (spoilt(data, at), data[:at]):
        good, faults = read(tmp_path / "night.tar.gz", damaged)
        assert [each.data for each in good] == ALERTS[: len(good)]
        (fault,) = faults
        if "data are damaged" in fault.fault:
            assert not good  # any byte before the damage may be wrong
        else:
            assert "the gzip data are cut off" in fault.fault


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-20], "the gzip data are cut off"),
        (lambda data: spoilt(data, 50), "the gzip data are damaged"),
        (lambda _: b"\x1f\x8b", "the gzip data are cut off"),
        (lambda data: data + b"more", "other bytes follow the gzip data"),
    ],
    ids=["cut", "middle", "magic alone", "more"],
)
def test_damaged_gzip_is_one_fault_of_the_bytes_on_the_disk(
    tmp_path: Path, damage: Callable, words: str
) -> None:
    data = damage(gzip.compress(ALERTS[0]))
    tarball = tar_of(("a/x.avro.gz", data), ("a/y.avro", ALERTS[1]))
    for path, whole in ((tmp_path / "x.avro.gz", data), (tmp_path / "t.tar", tarball)):
        good, (fault,) = read(path, whole)
        assert fault.data == data
        assert words in fault.fault
        assert fault.name == (f"{path}:a/x.avro.gz" if good else str(path))
    assert [each.data for each in good] == ALERTS[1:2]


def test_zeros_after_gzip_and_several_members_are_no_fault(tmp_path: Path) -> None:
    one, two = gzip.compress(ALERTS[0][:1000]), gzip.compress(ALERTS[0][1000:])
    good, faults = read(tmp_path / "x.avro.gz", one + two + bytes(1000))
    assert [each.data for each in good] == ALERTS[:1]
    assert not faults


def test_a_damaged_zip_is_one_fault(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, alert in enumerate(ALERTS):
            archive.writestr(f"{number}.avro", alert)
    whole = out.getvalue()
    good, (fault,) = read(tmp_path / "night.zip", whole[:-100])
    assert not good
    assert "night.zip cannot be read to its end" in fault.fault
    good, (fault,) = read(tmp_path / "night.zip", spoilt(whole, 500))
    assert [each.data for each in good] == ALERTS[1:]
    assert fault.name.endswith("night.zip:0.avro")
    assert "Bad CRC-32" in fault.fault


def test_archives_without_end_within_each_other_are_one_fault(tmp_path: Path) -> None:
    data = ALERTS[0]
    for _ in range(9):
        data = gzip.compress(data)
    _, (fault,) = read(tmp_path / "night.avro.gz", data)
    assert "archives within each other" in fault.fault


def test_a_damaged_file_with_nothing_whole_is_read_unchanged(tmp_path: Path) -> None:
    """It is not skipped: the function that receives it says what is wrong."""
    for data in (ALERTS[0][:-17], ALERTS[0][:3000], b"", b"not an alert", blocks()[:100]):
        (found,), faults = read(tmp_path / "damaged.avro", data)
        assert found.data == data
        assert not faults


SEVEN = {codec: blocks(codec, 2, RECORDS[:7]) for codec in CONTAINERS}  # the last block has one


@pytest.mark.parametrize("codec", SEVEN)
@pytest.mark.parametrize("limit", [LIMIT, 100], ids=["held", "long"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-60] + data[-59:], "a block does not end in its sync marker"),
        (lambda data: data[:-60] + b"\r" + data[-60:], "a block does not end in its sync marker"),
        (lambda data: data[:-16] + bytes(16), "a block does not end in its sync marker"),
        (lambda data: data[:-1], "the container is cut off within a block"),
        (lambda data: data[:-16], "the container is cut off within a block"),
        (lambda data: data[:-16] + bytes(15), "the container is cut off within a block"),
    ],
    ids=["a byte less", "a byte more", "another marker", "marker cut", "no marker", "both"],
)
def test_nothing_is_believed_of_a_block_without_its_marker(
    tmp_path: Path, codec: str, limit: int, damage: Callable, words: str
) -> None:
    """Its length is a claim, and the marker behind it the proof."""
    path, data = tmp_path / "night.avro", damage(SEVEN[codec])
    last = SEVEN[codec].rindex(SEVEN[codec][-16:], 0, -16) + 16
    path.write_bytes(data)
    *good, fault = files.read([path], limit)
    assert [candid(each) for each in good] == [1, 2, 3, 4, 5, 6]
    assert words in fault.fault
    assert fault.data == data[last : last + limit]


@pytest.mark.parametrize("limit", [LIMIT, 100], ids=["held", "long"])
def test_reading_goes_on_after_a_length_that_is_wrong(tmp_path: Path, limit: int) -> None:
    """However far it claims to reach: the good blocks behind it lie within its reach."""
    whole = SEVEN["null"]
    header = HEADERS["null"]
    for claimed in (100, len(whole), 1 << 20, 1 << 40):
        path = tmp_path / "night.avro"
        path.write_bytes(whole[:header] + container.varint(2) + container.varint(claimed) + whole)
        *good, fault = sorted(files.read([path], limit), key=lambda each: each.fault is not None)
        assert [candid(each) for each in good] == [1, 2, 3, 4, 5, 6, 7]
        assert f"from byte {header:,} of" in fault.fault


def test_many_long_blocks_without_markers_take_little_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each claims the rest of the file, and that is copied for the first ten only."""
    copied = []
    monkeypatch.setattr(
        Stream,
        "copy",
        lambda self, size, copy=Stream.copy: (copied.append(size), copy(self, size))[1],
    )
    whole, header, sync = SEVEN["null"], HEADERS["null"], SEVEN["null"][-16:]
    bad = container.varint(1) + container.varint(1 << 20) + b"no record" + sync
    path = tmp_path / "night.avro"
    path.write_bytes(whole[:header] + 1000 * bad + whole[header:])
    found = list(files.read([path], LIMIT))
    assert [candid(each) for each in found if not each.fault] == [1, 2, 3, 4, 5, 6, 7]
    assert [each.fault is not None for each in found] == 1000 * [True] + 7 * [False]
    assert len(copied) == 10
    assert "comes after 10 that do not end in their sync marker" in found[10].fault
    claims = container.varint(1) + container.varint(1 << 40) + b"no record" + sync
    path.write_bytes(whole + claims)
    *good, fault = files.read([path], LIMIT)
    assert len(good) == 7
    assert "a block claims 1,099,511,627,783 bytes" in fault.fault


@pytest.mark.parametrize("more", [b"\0", b"\0\0\0", b"more", b"\x03\0"])
def test_bytes_behind_the_deflate_data_of_a_block_make_it_a_fault(
    tmp_path: Path, more: bytes
) -> None:
    """Only a part of their checksum may follow, as fastavro's writer leaves three bytes of it."""
    body = zlib.compressobj(wbits=-15)
    records = b"".join(record_bytes(each) for each in RECORDS[:2])
    packed = body.compress(records) + body.flush() + more
    head = SEVEN["deflate"][: HEADERS["deflate"]]
    block = container.varint(2) + container.varint(len(packed)) + packed + head[-16:]
    path = tmp_path / "night.avro"
    path.write_bytes(SEVEN["deflate"] + block)
    *good, fault = files.read([path], LIMIT)
    assert [candid(each) for each in good] == [1, 2, 3, 4, 5, 6, 7]
    assert "other bytes follow the deflate data" in fault.fault


def record_bytes(record: dict) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), record)
    return out.getvalue()


@pytest.mark.parametrize("ending", ["avro", "tar", "tar of gz", "tar of zip"])
def test_no_room_for_a_temporary_file_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A dead letter would take the offset of an alert that the next run reads."""
    path = tmp_path / "night"
    path.write_bytes(SEVEN["null"])
    if ending.endswith("gz"):
        path.write_bytes(gzip.compress(SEVEN["null"]))
    if ending.endswith("zip"):
        with zipfile.ZipFile(tmp_path / "zip", "w") as zipped:
            zipped.write(path)
        path = tmp_path / "zip"
    if ending.startswith("tar"):
        with tarfile.open(tmp_path / "tar", "w") as archive:
            archive.add(path)
        path = tmp_path / "tar"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(SetupError, match="temporary file"):
        list(files.read([path], 100))
