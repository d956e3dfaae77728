"""Invented alerts for a small store, and the read service on a real uvicorn."""

import gzip
import threading
import time
import zlib
from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
import urllib3
import uvicorn

from stampede.alerts.columns import CUTOUT, DETECTION, KINDS, PACKET
from stampede.alerts.columns import MOVING as MOVING_ROWS
from stampede.events.http.bounded_protocol import bounded_protocol
from stampede.images.thumbnail import thumbnails
from stampede.proofs.prover import Prover
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.packs.packets import write_packets
from stampede.store.runs.schema import (
    CUTOUTS,
    DETECTIONS,
    MOVING,
    PACKETS,
    THUMBNAIL_PACKS,
    THUMBNAILS,
)
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.alerts.fits_files import lsst, source, ztf

NAN = float("nan")
ZTF_ALERT, ZTF_OBJECT = 1642404680815015001, "ZTF21abiuvdk"
LSST_ALERT, LSST_OBJECT = 170239611403501616, "169298437355340113"
BODY = "2011 UW158"
BOTH = 77  # an alert id of both surveys


class Reader:
    """Sends requests to a running service."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = urllib3.PoolManager(maxsize=4)

    def __call__(self, path: str, method: str = "GET", body: bytes | None = None, **kwargs):
        kwargs.setdefault("decode_content", False)
        kwargs.setdefault("redirect", False)
        kwargs.setdefault("retries", False)  # otherwise it waits as Retry-After says
        kwargs.setdefault("timeout", 120)
        return self._pool.request(method, self.url + path, body=body, **kwargs)


def serving(app) -> Iterator[Reader]:
    """Run an app; use as ``for read in serving(app):``, which ends the server after the block."""
    config = uvicorn.Config(
        app,
        port=0,
        http=bounded_protocol(app.state.service.settings.client_seconds),
        log_level="warning",
        lifespan="on",
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Reader(f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        thread.join()


def cutout(alert_id, survey, kind, object_id, mjd, fits) -> dict:
    return {
        "alert_id": alert_id,
        "survey": survey,
        "kind": kind,
        "object_id": object_id,
        "mjd": mjd,
        "band": "r",
        "ra": 10.0,
        "dec": -5.0,
        "fits": fits,
    }


def point(object_id: str, survey: str, source_id: int, mjd: float, **more) -> dict:
    return {
        "object_id": object_id,
        "survey": survey,
        "forced": False,
        "limit": False,
        "source_id": source_id,
        "mjd": mjd,
        "band": "r",
        "ra": 10.0,
        "dec": -5.0,
        "flux": 1234.5,
        "flux_err": 100.1,
        "reliability": 0.9,
        "limiting_mag": 20.5,
        "rb": 0.6,
        "programid": 1 if survey == "ztf" else None,
        "visit": 12,
        "detector": 3,
        "withdrawn": False,
        "processed_mjd": mjd,
        **more,
    }


def sample_observations() -> list[dict]:
    """Three observations of a body: one is of a stored alert, which ZTF sent."""
    shared = {"designation": BODY, "flux": 9000.0, "flux_err": 300.0, "processed_mjd": 59402.0}
    seen = {"survey": "lsst", "object_id": LSST_OBJECT, "mjd": 59400.0}
    at = {"phase_angle": 12.5, "helio_distance": 2.7, "topo_distance": 1.9, "band": "r"}
    ztf = {"survey": "ztf", "object_id": ZTF_OBJECT, "alert_id": ZTF_ALERT, "mjd": 59401.0}
    return [
        {**shared, **seen, **at, "alert_id": 11, "ra": 10.0, "dec": -5.0},
        {**shared, **seen, **at, "alert_id": 12, "ra": 10.3, "dec": -5.1, "phase_angle": 13.0},
        {**shared, **ztf, "band": "g", "ra": 10.6, "dec": -5.2, "programid": 1},
    ]


def fill(objects, cutouts: list[dict], points: list[dict], coverage: Coverage) -> None:
    """Store a pack of cutouts and a run of points."""
    pack = write_pack(pa.Table.from_pylist(cutouts, CUTOUT), coverage)
    objects.put(pack.key, memoryview(pack.data))
    Table(objects, CUTOUTS).append(pack.locations, coverage)
    Table(objects, DETECTIONS).append(pa.Table.from_pylist(points, DETECTION), coverage)


def draw(objects, cutouts: list[dict], coverage: Coverage) -> None:
    """Store thumbnails as the function `thumbnails` does."""
    drawn = thumbnails(pa.Table.from_pylist(cutouts, CUTOUT))
    pack = write_pack(drawn.rows, coverage, THUMBNAIL_PACKS)
    objects.put(pack.key, memoryview(pack.data))
    Table(objects, THUMBNAILS).append(pack.locations, coverage)


def keep(objects, alert_id: int, object_id: str, mjd: float) -> None:
    """Store the packet of a ZTF alert without images."""
    message = made_alerts.ztf_alert(alert_id)
    row = {
        **{"alert_id": alert_id, "survey": "ztf", "object_id": object_id, "mjd": mjd},
        **{"packet": message, "crc32": zlib.crc32(message), "sha256": sha256(message).digest()},
    }
    pack = write_packets(pa.Table.from_pylist([row], PACKET), [[message]], Coverage())
    objects.put(pack.key, pack.data)
    Table(objects, PACKETS).append(pack.locations, Coverage())


def observe(objects, coverage: Coverage) -> None:
    """Store the observations of the sample."""
    rows = pa.Table.from_pylist(sample_observations(), MOVING_ROWS)
    Table(objects, MOVING).append(rows, coverage)


def sample_cutouts() -> list[dict]:
    rows = []
    for number, kind in enumerate(KINDS):
        image = source(seed=number)
        rows.append(cutout(ZTF_ALERT, "ztf", kind, ZTF_OBJECT, 59400.0, ztf(image)))
        fits = None if kind == "template" else lsst(source(30, seed=number))
        rows.append(cutout(LSST_ALERT, "lsst", kind, LSST_OBJECT, 60800.5, fits))
        rows.append(cutout(BOTH, "ztf", kind, "ZTF00both", 59000.0, ztf(image)))
        rows.append(cutout(BOTH, "lsst", kind, "77", 60000.0, ztf(image)))
    rows.append(
        cutout(666, "ztf", "science", "ZTF00bad", 59000.0, gzip.compress(b"not FITS" * 999))
    )
    return rows


def sample_points() -> list[dict]:
    old, new = (ZTF_OBJECT, "ztf"), (LSST_OBJECT, "lsst")
    return [
        point(*old, ZTF_ALERT, 59400.0),
        point(*old, 3, 59399.0, band="g", flux=-50.0),
        point(*old, 2, 59398.0, limit=True, flux=None, flux_err=20.0, band="g", visit=None),
        point(*old, 4, 59401.0, forced=True, flux=NAN),
        point(*old, 5, 59402.0, withdrawn=True),
        point(*new, LSST_ALERT, 60800.5, total_flux=2000.0, total_flux_err=1.5, band="y"),
        point(*new, 9007199254740993, 60700.5, forced=True, band="u"),
    ]


def sample_store() -> MemoryObjects:
    """A store of the sample alerts: of one the thumbnail, of another packet and proof."""
    objects = MemoryObjects()
    coverage = Coverage.of({("ztf", 0): [1, 2, 5]})
    fill(objects, sample_cutouts(), sample_points(), coverage)
    draw(objects, [row for row in sample_cutouts() if row["alert_id"] == BOTH], coverage)
    keep(objects, ZTF_ALERT, ZTF_OBJECT, 59400.0)
    observe(objects, coverage)
    for _ in Prover(objects, None, 0, None).make_pass():
        pass
    return objects
