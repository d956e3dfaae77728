"""Compares what was sent with what is stored, read over HTTP as a user reads it."""

import gzip
import io
import json
import urllib.request
from collections.abc import Iterable, Iterator
from http.client import IncompleteRead
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.store.objects.object_store import Objects
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.faults import FAULTS
from stampede_simulator.simulator import Simulator

CHUNK = 300  # ids in one query
TRIES = 3  # of a query
# ZTF's magnitudes are 32 bits wide, and its times are in another scale.
TOLERANCE = dict.fromkeys(("flux", "flux_err", "total_flux", "total_flux_err"), 1e-5) | {
    "mjd": 1e-13
}

Cutouts = dict[tuple[str, int, str], bytes]


class Letter(NamedTuple):
    """A dead letter."""

    code: str
    reason: str
    data: bytes


def refused_by(fault: str) -> list[str]:
    """The tables whose function refuses an alert with that fault."""
    responses = zip(("cutouts", "detections"), FAULTS[fault], strict=True)
    return [table for table, status in responses if status >= 400]


def cutouts_of(alerts: Iterable[SimulatedAlert]) -> Cutouts:
    """The FITS files that these alerts carry."""
    return {
        (alert.survey, alert.alert_id, kind): fits
        for alert in alerts
        for kind, fits in alert.fits.items()
        if fits is not None
    }


def stored_cutouts(read: str, alert_ids: Iterable[int]) -> Cutouts:
    """The FITS files that `read` gives for these alerts."""
    return {
        (row["survey"], row["alert_id"], row["kind"]): gzip.decompress(row["fits"])
        for row in _rows(f"{read}/v1/cutouts?format=arrow", map(str, alert_ids))
        if row["fits"] is not None
    }


def differences(one: Cutouts, other: Cutouts) -> list[tuple[str, int, str]]:
    """Cutouts that differ, or that only one of the two has."""
    return [key for key in {**one, **other} if one.get(key) != other.get(key)]


def assert_light_curves(
    read: str, simulator: Simulator, object_ids: Iterable[str] | None = None
) -> int:
    """Assert that light curves, by default all, are what the simulator made; return the points."""
    object_ids = simulator.object_ids if object_ids is None else list(object_ids)
    curves: dict[str, dict[tuple, dict]] = {}
    for row in _rows(f"{read}/v1/lightcurves?format=arrow", object_ids):
        key = tuple(row[name] for name in ("object_id", "survey", "forced", "limit", "source_id"))
        assert key not in curves.setdefault(row["object_id"], {}), "a point came twice"
        curves[row["object_id"]][key] = row
    assert curves.keys() == set(object_ids)
    for object_id, curve in curves.items():
        expected_points = simulator.light_curve(object_id)
        assert curve.keys() == {point.key for point in expected_points}, object_id
        for point in expected_points:
            row = curve[point.key]
            for name, value in point._asdict().items():
                expected = value
                if value is not None and name in TOLERANCE:
                    # The source of the reference image and the difference may cancel.
                    size = abs(value) + (abs(point.flux or 0) if name == "total_flux" else 0)
                    expected = pytest.approx(value, rel=0, abs=TOLERANCE[name] * size)
                assert row[name] == expected, (point.key, name)
    return sum(map(len, curves.values()))


def light_curve_points(read: str, object_ids: Iterable[str]) -> set[tuple[str, str, int]]:
    """Survey, object and alert of each point that is the alert's own detection."""
    return {
        (row["survey"], row["object_id"], row["source_id"])
        for row in _rows(f"{read}/v1/lightcurves?format=arrow", object_ids)
        if not row["forced"] and not row["limit"]
    }


def letters(objects: Objects, table: str) -> dict[tuple[str, int, int], Letter]:
    """The dead letters of a table by name of the topic, partition and offset."""
    found = {}
    for info in objects.list(f"deadletters/{table}/"):
        for row in pq.read_table(io.BytesIO(objects.get(info.key))).to_pylist():
            position = (row["topic"].partition("@")[0], row["partition"], row["offset"])
            letter = Letter(row["code"], row["reason"], row["data"])
            assert found.setdefault(position, letter).data == letter.data
    return found


def _rows(url: str, ids: Iterable[str]) -> Iterator[dict]:
    ids = sorted(set(ids))
    for at in range(0, len(ids), CHUNK):
        yield from _answer(url, ids[at : at + CHUNK])


def _answer(url: str, ids: list[str]) -> list[dict]:
    """The rows of one query. A response that is cut off, as when the store fails, is repeated."""
    body = json.dumps({"ids": ids}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return pa.ipc.open_stream(response).read_all().to_pylist()
        except IncompleteRead:
            if not left:
                raise
    raise AssertionError
