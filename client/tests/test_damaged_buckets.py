"""Whatever happened to a bucket, its readers give the true rows, or their own error."""

import random
import shutil
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import stampede_client
from stampede.alerts.columns import CUTOUT, DETECTION, KINDS
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.parquet import checksums as checked_parquet
from stampede.store.runs import writer as run_writer
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TableSpec
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from stampede_client import StampedeClientError
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import cutout, point

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OBJECTS = [f"Z{number:02}" for number in range(40)]
ASKED = [*OBJECTS[::8], "Z39", "unknown"]
ALERTS = range(1, 41)
QUICK, MANY = 12, 1_200
COLUMNS = ("object_id", "source_id", "mjd", "flux", "withdrawn", "band")


def fill(root: Path, spec: TableSpec, batches: list[pa.Table]) -> None:
    """Runs of level 0, and a run of level 1 in two parts that eight others were merged into."""
    table = Table(DirectoryObjects(root), spec, threads=1)
    for number, rows in enumerate(batches):
        table.append(rows, Coverage.of({("t", 0): [number]}))
        if number == 7:
            for hours in (0, 1):
                compact(
                    table,
                    NOW + timedelta(hours=hours),
                    Policy(fanout=8, run_rows=batches[0].num_rows * 5, slice_rows=60),
                )
    table.close()


def points(batch: int) -> pa.Table:
    rows = [
        point(name, "ztf", 100 * number + n, 59000.0 + n, flux=float(batch), processed_mjd=batch)
        for number, name in enumerate(OBJECTS)
        for n in (batch, batch + 1)
    ]
    return pa.Table.from_pylist(rows, DETECTION)


def places(root: Path, batch: int) -> pa.Table:
    """The rows of a pack of four alerts, which is stored."""
    rows = [
        cutout(alert, "ztf", kind, "Z", 59000.0 + batch % 2, ztf(source(9, seed=3 * alert + n)))
        for alert in ALERTS[4 * batch : 4 * batch + 4]
        for n, kind in enumerate(KINDS)
    ]
    pack = write_pack(pa.Table.from_pylist(rows, CUTOUT), Coverage.of({("t", 0): [batch]}))
    DirectoryObjects(root).put(pack.key, memoryview(pack.data))
    return pack.locations


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bucket")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_writer, "GROUP_ROWS", 60)
        patch.setattr(run_writer, "SMALL_GROUPS", 3)
        patch.setattr(run_writer, "SECTION_GROUPS", 2)
        fill(root, DETECTIONS, [points(batch) for batch in range(11)])
        patch.setattr(run_writer, "GROUP_ROWS", 20)
        fill(root, CUTOUTS, [places(root, batch) for batch in range(10)])
    for name in ("detections", "cutouts"):
        runs = {path.name for path in (root / "tables" / name).iterdir()}
        assert sum(name.startswith("0001-") for name in runs) >= 2
        assert sum(name.startswith("0000-") for name in runs) >= 2
    for path in root.rglob("*.parquet"):
        path.chmod(0o600)
    return root


Answer = dict[str, list]


def curves(root: Path) -> Answer:
    """The points of each object; an error of the client for those that have one."""
    reader = stampede_client.detections(str(root))
    found: Answer = {}
    for name in ASKED:
        try:
            found[name] = reader.arrow(objects=[name]).select(COLUMNS).to_pylist()
        except StampedeClientError as error:
            found[name] = [error]
    return found


def pixels(root: Path) -> Answer:
    """The images of each of six alerts; an error of the client for those that have one."""
    found: Answer = {}
    for alert in (1, 8, 17, 24, 33, 40):
        try:
            images = stampede_client.images(str(root), ids=[alert])
            found[str(alert)] = [*zip(images.kinds, images.planes.tolist(), strict=True)]
        except StampedeClientError as error:
            found[str(alert)] = [error]
    return found


Change = Callable[[random.Random, bytes, bytes], bytes]


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def flip(choose: random.Random, data: bytes, first: int, end: int) -> bytes:
    changed = bytearray(data)
    changed[choose.randrange(first, end)] ^= 1 << choose.randrange(8)
    return bytes(changed)


def swap_blocks(choose: random.Random, data: bytes) -> bytes:
    changed, size = bytearray(data), choose.choice([4, 64, 512])
    one, other = (choose.randrange(len(data) - size) for _ in range(2))
    changed[one : one + size], changed[other : other + size] = (
        data[other : other + size],
        data[one : one + size],
    )
    return bytes(changed)


CHANGES: dict[str, Change] = {
    "a bit of the footer": lambda choose, data, _: flip(
        choose, data, footer_start(data), len(data)
    ),
    "a bit of the body": lambda choose, data, _: flip(choose, data, 0, footer_start(data)),
    "cut short": lambda choose, data, _: data[: choose.randrange(len(data))],
    "blocks swapped": lambda choose, data, _: swap_blocks(choose, data),
    "the footer of another": lambda choose, data, other: (
        data[: footer_start(data)] + other[footer_start(other) :]
    ),
    "another object": lambda choose, data, other: other,
    "zeros": lambda choose, data, _: (
        data[: (at := choose.randrange(len(data)))] + bytes(len(data) - at)
    ),
}
# Bits of the footer are as many as all others, since nothing in Parquet guards them.
WEIGHTS = [6, 3, 1, 1, 1, 1, 1]


def campaign(root: Path, folder: str, read: Callable[[Path], Answer], count: int) -> None:
    """Change an object of a folder so many times; no response may be another one."""
    choose, truth = random.Random(5), read(root)
    paths = sorted((root / folder).rglob("*.parquet"))
    others = sorted(root.rglob("*.parquet"))
    wrong, errors = [], 0
    for _ in range(count):
        path, name = choose.choice(paths), choose.choices([*CHANGES], WEIGHTS)[0]
        data = path.read_bytes()
        path.write_bytes(CHANGES[name](choose, data, choose.choice(others).read_bytes()))
        try:
            for key, found in read(root).items():
                if found and isinstance(found[0], StampedeClientError):
                    errors += 1
                elif found != truth[key]:
                    wrong.append(f"{name} of {path.name}: {key}: {len(found)} of {len(truth[key])}")
        except Exception as error:
            wrong.append(f"{name} of {path.name}: {error!r:.200}")
        finally:
            path.write_bytes(data)
    print(f"{folder}: {count} changes, {errors} errors, {len(wrong)} wrong")
    assert not wrong, "\n".join([f"{len(wrong)} of {count * len(truth)}", *wrong[:20]])
    assert errors > count // 20, "no change did any harm: this proves nothing"


COUNTS = [QUICK, pytest.param(MANY, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("count", COUNTS)
def test_light_curves_of_damaged_runs(bucket: Path, count: int) -> None:
    campaign(bucket, "tables/detections", curves, count)


@pytest.mark.parametrize("count", COUNTS)
def test_images_of_damaged_runs(bucket: Path, count: int) -> None:
    campaign(bucket, "tables/cutouts", pixels, count)


@pytest.mark.parametrize("count", COUNTS)
def test_images_of_damaged_packs(bucket: Path, count: int) -> None:
    campaign(bucket, "packs", pixels, count)


@pytest.fixture
def copy(bucket: Path, tmp_path: Path) -> Path:
    """A copy of the bucket, to be changed."""
    return Path(shutil.copytree(bucket, tmp_path / "copy"))


def parts(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(f"tables/detections/{pattern}"))


def test_a_lost_part_of_a_merged_run_is_never_silent(bucket: Path, copy: Path) -> None:
    last = parts(copy, "0001-*")[-1]
    last.unlink()
    truth, found = curves(bucket), curves(copy)
    assert found["Z00"] == truth["Z00"], "the other part has its rows"
    [error] = found["Z39"]
    assert isinstance(error, stampede_client.Incomplete)
    assert "a part of a merged run is missing" in str(error)
    assert last.name in str(error)
    with pytest.raises(stampede_client.Incomplete):
        stampede_client.detections(str(copy)).arrow()


def test_the_rest_on_request_with_a_warning(bucket: Path, copy: Path) -> None:
    run = parts(copy, "0000-*")[0]
    data = bytearray(run.read_bytes())
    data[len(data) // 2] ^= 1
    run.write_bytes(data)
    reader = stampede_client.detections(str(copy), errors="skip")
    with pytest.warns(stampede_client.IncompleteWarning, match=run.name) as caught:
        found = reader.arrow(objects=["Z00"])
    assert caught[0].filename == __file__
    whole = stampede_client.detections(str(bucket)).arrow(objects=["Z00"])
    assert 0 < found.num_rows < whole.num_rows + 1
    [other] = (copy / "tables" / "cutouts").glob("0001-*-0of*")
    other.write_bytes(b"")
    with pytest.warns(stampede_client.IncompleteWarning, match=other.name):
        images = stampede_client.images(str(copy), ids=[1, 40], errors="skip")
    assert set(images.alert_ids) == {40}


def test_a_run_that_only_a_checkpoint_remembers(bucket: Path, copy: Path, tmp_path: Path) -> None:
    objects = DirectoryObjects(copy)
    table = Table(objects, DETECTIONS)
    table.refresh()
    put_checkpoint(objects, DETECTIONS, table.listing.remembered())
    table.close()
    assert curves(copy) == curves(bucket)
    gone = parts(copy, "0000-*")[0]
    gone.unlink()
    [error] = curves(copy)["Z00"]
    assert isinstance(error, stampede_client.Incomplete)
    assert gone.name in str(error)
    folder = copy / "checkpoints" / "detections"
    checkpoints = sorted(folder.glob("*.parquet"))
    unrelated = tmp_path / "unrelated"
    older = put_checkpoint(DirectoryObjects(unrelated), DETECTIONS, [])
    digest = older.rpartition("-")[2]
    for name in (older.rpartition("/")[2], f"9000000000-{digest}"):  # of another bucket
        shutil.copy(unrelated / older, folder / name)
        [error] = curves(copy)["Z00"]
        assert isinstance(error, stampede_client.Incomplete), name
    for checkpoint in checkpoints:
        checkpoint.chmod(0o600)
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    assert curves(copy)["Z00"] != curves(bucket)["Z00"], "nothing else knows of such a run"


@pytest.fixture
def unswept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A merged run in two parts beside its inputs."""
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 60)
    table = Table(DirectoryObjects(tmp_path), DETECTIONS, threads=1)
    for number in range(8):
        table.append(points(number), Coverage.of({("t", 0): [number]}))
    compact(table, NOW, Policy(fanout=8, run_rows=200, slice_rows=60))
    table.close()
    for path in tmp_path.rglob("*.parquet"):
        path.chmod(0o600)
    assert len(parts(tmp_path, "0000-*")) == 8
    assert len(parts(tmp_path, "0001-*")) == 2
    return tmp_path


@pytest.mark.parametrize("harm", ["half-written", "empty", "a bit of the footer", "a page"])
def test_inputs_stand_in_for_a_merged_run_that_is_not_whole(unswept: Path, harm: str) -> None:
    truth = curves(unswept)
    part = parts(unswept, "0001-*")[1]
    data = bytearray(part.read_bytes())
    if harm == "half-written":
        part.unlink()
    elif harm == "empty":
        part.write_bytes(b"")
    else:
        data[-50 if "footer" in harm else footer_start(bytes(data)) // 2] ^= 1
        part.write_bytes(data)
    assert curves(unswept) == truth


def test_a_damaged_input_of_a_whole_run_is_not_missed(unswept: Path) -> None:
    truth = curves(unswept)
    for path in parts(unswept, "0000-*"):
        path.write_bytes(b"")
    assert curves(unswept) == truth


def test_an_object_of_a_later_format_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = checked_parquet.PLACEHOLDER | {"stampede.format": "3"}
    monkeypatch.setattr(run_writer, "PLACEHOLDER", later)
    table = Table(DirectoryObjects(tmp_path), DETECTIONS)
    table.append(points(0), Coverage.of({("t", 0): [0]}))
    table.close()
    with pytest.raises(stampede_client.Incomplete, match="has format 3: update stampede-client"):
        stampede_client.detections(str(tmp_path)).arrow()


def test_alerts_whose_packs_are_gone_are_named(copy: Path) -> None:
    before = stampede_client.images(str(copy), ids=[*ALERTS, 99])
    assert (before.missing, before.gone) == ([99], [])
    packs = sorted(copy.glob("packs/59000/*"))
    packs[0].unlink()
    found = stampede_client.images(str(copy), ids=[*ALERTS, 99])
    assert found.missing == [99]
    assert len(found.gone) == 4
    assert {*found.gone} | {*found.alert_ids.tolist()} == {*ALERTS}


def test_a_store_that_fails_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "detections").write_text("a file")
    with pytest.raises(stampede_client.Unavailable, match="check path, keys and endpoint"):
        stampede_client.detections(str(tmp_path)).arrow()
    with pytest.raises(stampede_client.BadInput, match="no URL of a bucket"):
        stampede_client.detections("nothing://here")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_what_is_read_and_what_is_lacking_is_as_the_server_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Runs of two levels, of which any objects are lost or damaged."""
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 60)
    choose, root = random.Random(seed), tmp_path / "bucket"
    table = Table(DirectoryObjects(root), DETECTIONS, threads=1)
    for number in range(10):
        table.append(points(number), Coverage.of({("t", 0): [number]}))
        if number in (3, 7):  # each time with the inputs of the last merges, of which some are gone
            grace = timedelta(hours=1 if number == 7 else 9)
            now = NOW + timedelta(hours=number)
            compact(table, now, Policy(fanout=4, run_rows=150, slice_rows=60, grace=grace))
    table.close()
    paths = sorted((root / "tables" / "detections").iterdir())
    assert {path.name[:4] for path in paths} == {"0000", "0001"}
    flagged = 0
    for _ in range(20 if seed == 1 else 400):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        copy = Path(shutil.copytree(root, tmp_path / "copy"))
        for path in choose.sample(paths, choose.choice([1, 1, 2, 3])):
            harm(choose, copy / path.relative_to(root))
        flagged += compare(copy, choose.choice([*OBJECTS[::8], "Z39"]))
    assert flagged > 2


def harm(choose: random.Random, path: Path) -> None:
    if choose.random() < 0.5:
        path.unlink()
        return
    path.chmod(0o600)
    data = path.read_bytes()
    first, end = choose.choice([(4, footer_start(data)), (footer_start(data), len(data))])
    path.write_bytes(flip(choose, data, first, end))


def compare(root: Path, name: str) -> bool:
    """Compare the reader with the server's own table; whether rows may be lacking."""
    table = Table(DirectoryObjects(root), DETECTIONS, threads=1)
    rows = table.lookup([name])
    lacking = table.lacking([name])
    table.close()
    reader = stampede_client.detections(str(root), errors="skip")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = reader.arrow(objects=[name])
    assert {one.category for one in caught} <= {stampede_client.IncompleteWarning}
    said = [str(one.message) for one in caught]
    if any("digest in its name" in one for one in said):
        return True  # the server leaves that to scrub
    assert bool(said) == bool(lacking), (lacking, said)
    expected = rows.sort_by("mjd").select(COLUMNS).to_pylist()
    assert found.select(COLUMNS).to_pylist() == expected
    return bool(lacking)
