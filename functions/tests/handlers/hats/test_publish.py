"""publish: events keep a catalogue in a bucket of its own, and LSDB opens it there, unmodified."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.handlers.hats import points as hats_points
from stampede.handlers.hats.catalogue import open_catalogue, publish
from stampede.handlers.hats.points import points_of
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from stampede_local.ceph import LocalCeph
from stampede_simulator.simulator import Fields, Simulator
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.served import metrics
from tests.support.store.ceph import minio_of
from tests.support.store.watched_objects import Forwarding

ROOT = Path(__file__).parents[4]


def batches(folder: Path) -> Iterator[tuple[pa.Table, Coverage]]:
    """Points of twelve objects, and then more of the same."""
    alerts = [
        alert for alert in Simulator(3, Fields(objects=12)).alerts(120) if alert.fault is None
    ]
    decoder = make_batch_decoder(folder, 70_000.0)
    for begin, end in ((0, 100), (100, len(alerts))):
        rows = decoder.detections([alert.body for alert in alerts[begin:end]]).rows
        yield rows, Coverage.of({("alerts", 0): range(begin, end)})


def add(objects: Objects, rows, coverage: Coverage) -> None:
    Table(objects, POSITIONS).append(positions_of(rows), coverage)
    Table(objects, DETECTIONS).append(rows, coverage)


@pytest.mark.integration
def test_events_keep_a_catalogue_that_lsdb_opens_in_its_bucket(
    serve, ceph: LocalCeph, bucket: Settings, tmp_path: Path
) -> None:
    name = "sky-of-" + bucket.store.rpartition("-")[2]
    minio_of(ceph).make_bucket(bucket_name=name)
    keys = (ceph.keys.access_key, ceph.keys.secret_key)
    served = serve(
        "publish",
        STORE=bucket.store,
        ACCESS_KEY=keys[0],
        SECRET_KEY=keys[1],
        CATALOGUE=f"{ceph.endpoint}/{name}",
    )
    objects, names = open_objects(bucket), set[str]()
    for number, (rows, coverage) in enumerate(batches(tmp_path)):
        add(objects, rows, coverage)
        names.update(rows["object_id"].to_pylist())
        assert served.post(number, b"{}").status == 204
    assert b'stampede_publish_passes_total{outcome="done"} 2.0' in metrics(served)
    table = Table(objects, DETECTIONS)
    table.refresh()
    points = sum(
        not withdrawn for withdrawn in table.lookup(sorted(names))["withdrawn"].to_pylist()
    )
    python = ROOT / ".venv-lsdb" / "bin" / "python"
    if not python.exists():
        pytest.skip("`make servers` makes .venv-lsdb")
    env = {"AWS_ENDPOINT_URL": ceph.endpoint, "AWS_DEFAULT_REGION": "us-east-1"}
    env |= {"AWS_ACCESS_KEY_ID": keys[0], "AWS_SECRET_ACCESS_KEY": keys[1]}
    minio_of(ceph).set_bucket_policy(name, json.dumps(for_all_to_read(name)))
    for place in (f"s3://{name}", f"{ceph.endpoint}/{name}"):
        done = subprocess.run(
            [python, ROOT / "client" / "tests" / "with_lsdb.py", place, "10", "10"],
            env=os.environ | env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        opened = json.loads(done.stdout)
        assert opened["rows"] == len(opened["curves"]) == len(names)
        assert sum(count for count, _ in opened["curves"].values()) == points


def for_all_to_read(name: str) -> dict:
    """The policy of a bucket that anybody reads, without keys."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": ["*"]},
                "Action": ["s3:GetObject"],
                "Resource": [f"arn:aws:s3:::{name}/*"],
            }
        ],
    }


def test_groups_of_pixels_have_all_points_of_their_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hats_points, "FEW", 0)
    store = DirectoryObjects(tmp_path / "store")
    table = Table(store, DETECTIONS)
    for rows, coverage in batches(tmp_path):
        table.append(rows, coverage)
        table.append(rows.slice(5), Coverage.of({("again", 0): [rows.num_rows]}))  # versions
    table.refresh()
    objects = rows.group_by(["object_id", "survey"]).aggregate([])
    pixels = [objects.slice(at, 5) for at in range(0, objects.num_rows, 3)]  # some are in two
    groups = [*points_of(table, pixels, most=100)]
    assert [at for some, _ in groups for at in some] == [*range(len(pixels))]
    assert len(groups) > 2
    for some, points in groups:
        ids = [name for at in some for name in pixels[at]["object_id"].to_pylist()]
        stored = table.lookup(ids)
        assert points.equals(stored.filter(pc.invert(stored["withdrawn"])).combine_chunks())


class Killed(Exception):
    """The process ends here."""


class Fragile(Forwarding):
    """A place whose writer is killed before it writes the list of the pixels."""

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        if key == "objects/partition_info.csv":
            raise Killed
        super().put(key, data, sha256)


def test_a_pass_that_is_killed_leaves_a_catalogue_and_is_done_again(tmp_path: Path) -> None:
    store, sky = (DirectoryObjects(tmp_path / name) for name in ("store", "sky"))
    for killed, (rows, coverage) in enumerate(batches(tmp_path)):
        add(store, rows, coverage)
        if killed:
            with pytest.raises(Killed):  # most pixels are cut, and get other names
                publish(store, Fragile(sky), "sky", most=1)
        else:
            before = publish(store, sky, "sky")
    listed = sky.get("objects/partition_info.csv").decode().split()[1:]
    assert len(listed) == before.pixels
    for order, number in (line.split(",") for line in listed):
        assert sky.head(f"objects/dataset/Norder={order}/Dir=0/Npix={number}.parquet").size
    again = publish(store, sky, "sky", most=1)
    assert again.pixels > before.pixels > again.pixels - again.written
    assert sum(1 for info in sky.list("objects/dataset/Norder=")) == again.pixels


def test_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}/store")
    for where, why in (
        ("", "Set STAMPEDE_CATALOGUE"),
        (f"{settings.store}/", "is the store itself"),
        ("sky", "not a store: 'sky'"),
    ):
        with pytest.raises(SetupError, match=why):
            open_catalogue(settings, where)
