"""Two S3 endpoints, each its own Ceph, and alerts stored at the first."""

from collections.abc import Iterator, Sequence

import pytest

from stampede.alerts.columns import CUTOUT, KINDS
from stampede.config.settings import Settings
from stampede.runtime.clock import now_mjd
from stampede.store.integrity.digests import same
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack import Pack, write_pack
from stampede.store.replication.site_local import of_one_site
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from tests.support.alerts.fits_files import ztf_source
from tests.support.store import rows

TODAY = int(now_mjd())


@pytest.fixture(scope="module")
def second_ceph(
    ceph_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCeph]:
    """The Ceph of the second site, with its own access keys."""
    directory = tmp_path_factory.mktemp("second")
    with LocalCeph(directory, free_port(2), "memstore", 4) as server:
        yield server


@pytest.fixture
def sites(bucket: Settings, second_ceph: LocalCeph) -> Settings:
    """Settings with two empty stores."""
    name = bucket.store.rpartition("/")[2]
    settings = with_replica(bucket, second_ceph, name)
    open_replica(settings).ensure_bucket()
    return settings


def with_replica(settings: Settings, ceph: LocalCeph, name: str) -> Settings:
    replica = {
        "replica": f"{ceph.endpoint}/{name}",
        "replica_access_key": ceph.keys.access_key,
        "replica_secret_key": ceph.keys.secret_key,
    }
    return Settings(**(settings.model_dump(exclude_unset=True) | replica))


def environment(settings: Settings) -> dict[str, str]:
    found = settings.model_dump(exclude_unset=True)
    found |= {name: found[name].get_secret_value() for name in found if "secret" in name}
    return {name.upper(): str(value) for name, value in found.items()}


def all_same(settings: Settings) -> bool:
    first, second = (
        [info for info in site.list("") if not of_one_site(info.key)]
        for site in (open_objects(settings), open_replica(settings))
    )
    return len(first) == len(second) and all(map(same, first, second))


def put_pack(
    objects: Objects, offsets: Sequence[int], night: int = TODAY, kafka: bool = True
) -> Pack:
    """Store a pack without its run, as `cutouts` does first; an alert's id is its offset."""
    cutouts = [rows.cutout(i, kind, ztf_source(i), night + 0.5) for i in offsets for kind in KINDS]
    coverage = Coverage.of({("alerts", 0): offsets} if kafka else {})
    pack = write_pack(rows.table(cutouts, CUTOUT), coverage)
    objects.put(pack.key, pack.data)
    return pack


def put_all(objects: Objects, offsets: Sequence[int], night: int = TODAY) -> Pack:
    """Store a pack, its run, and the points of `lightcurves`."""
    pack, coverage = put_pack(objects, offsets, night), Coverage.of({("alerts", 0): offsets})
    Table(objects, CUTOUTS).append(pack.locations, coverage)
    points = rows.table(rows.detection("1", i) for i in offsets)
    Table(objects, DETECTIONS).append(points, coverage)
    return pack
