"""What a bucket says by read, replay, audit, the dead letters, DuckDB and the client."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa

import stampede_client
from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader
from stampede.handlers.audit.audit import audit
from stampede.handlers.replay.messages import Replayed
from stampede.handlers.replay.night import Night
from stampede.read.app import make_app
from stampede.store.open import open_objects
from tests.support.read.read_service import Reader, serving

PARTS = ("packet", "thumbnail", "cutouts/science", "cutouts/template", "cutouts/difference")
RAW = """
SELECT DISTINCT ON ({key}) {columns}
FROM read_parquet('{files}', union_by_name = true)
ORDER BY {key}
"""
RAW_COLUMNS = {
    "ztf": ("candid", "objectId, candid, candidate.magpsf, candidate.programid"),
    "lsst": (
        "diaSource.diaSourceId",
        "diaSource.diaSourceId, diaSource.psfFlux, observation_reason",
    ),
}


class Names(NamedTuple):
    """What to ask for.

    Attributes
    ----------
    alerts
        As ``survey/id``.
    columns
        Those of a light curve: a later version may give more.
    cones
        Right ascension and declination, degrees.
    nights
        Integer MJD.
    """

    alerts: list[str]
    objects: list[str]
    columns: list[str]
    cones: list[list[float]]
    nights: list[int]


def digest(data: bytes) -> str:
    """The digest of bytes."""
    return sha256(data).hexdigest()[:32]


def alerts(settings: Settings, names: Names) -> dict[str, dict[str, str | None]]:
    """Digests of each packet, thumbnail and cutout; None for what is not there."""

    def part_of(read: Reader, alert: str, part: str) -> str | None:
        survey, alert_id = alert.split("/")
        response = read(f"/v1/alerts/{alert_id}/{part}?survey={survey}")
        assert response.status in (200, 404), response.data
        return digest(response.data) if response.status == 200 else None

    return {
        alert: {part: part_of(read, alert, part) for part in PARTS}
        for read in serving(make_app(settings))
        for alert in names.alerts
    }


def light_curves(settings: Settings, names: Names) -> dict[str, list]:
    """The number of points of each object, and the digest of their values."""
    body = json.dumps({"ids": names.objects}).encode()
    headers = {"Content-Type": "application/json"}
    for read in serving(make_app(settings)):
        url = "/v1/lightcurves?format=arrow&withdrawn=true"
        response = read(url, "POST", body, headers=headers)
        assert response.status == 200, response.data
        return _curves(pa.ipc.open_stream(response.data).read_all(), names)
    raise AssertionError


def light_curves_of_the_bucket(settings: Settings, names: Names) -> dict[str, list]:
    """The same, read by `stampede_client` from the bucket itself."""
    table = stampede_client.detections(urlsplit(settings.store).path)
    return _curves(table.arrow(names.objects, withdrawn=True), names)


def _curves(table: pa.Table, names: Names) -> dict[str, list]:
    found: dict[str, list[str]] = {}
    for row in table.to_pylist():
        values = [row[name] for name in names.columns]
        found.setdefault(row["object_id"], []).append(json.dumps(values))
    return {name: [len(rows), _digest_of(sorted(rows))] for name, rows in found.items()}


def cones(settings: Settings, names: Names) -> list[list[str]]:
    """The objects around each place, the nearest first."""
    return [
        [row["object_id"] for row in read(url).json()["objects"]]
        for read in serving(make_app(settings))
        for url in (f"/v1/cone?ra={ra}&dec={dec}&radius=5" for ra, dec in names.cones)
    ]


def nights(settings: Settings, names: Names) -> dict[str, dict[str, int]]:
    """How often `replay` sends each message of a night, by the message's digest."""
    found = {}
    for night in names.nights:
        sent = list(Night(settings, night))
        assert all(isinstance(each, Replayed) for each in sent), sent
        found[str(night)] = dict(sorted(Counter(digest(each.message) for each in sent).items()))
    return found


def dead_letters(settings: Settings, _: Names) -> list[list[str]]:
    """Id, reason and digest of each dead letter."""
    letters = DeadLetterReader(open_objects(settings), DeadLetterFilter()).letters()
    return sorted([each.id, each.reason, digest(each.data)] for each in letters)


def ledger(settings: Settings, _: Names) -> dict[str, Any]:
    """What `stampede audit` counts: of all partitions together, and the digest of their lines."""
    entries = audit(open_objects(settings), settings, Topics(), everything=True)
    lines = sorted(repr(entry[:9]) for entry in entries)
    return {
        "partitions": len(entries),
        "stored": sum(entry.stored for entry in entries),
        "dead_lettered": sum(entry.dead_lettered for entry in entries),
        "missing": sum(entry.missing_count for entry in entries),
        "digest": _digest_of(lines),
    }


def raw_alerts(settings: Settings, _: Names) -> dict[str, list]:
    """The number of alerts of each survey in its own columns, and the digest of some of these."""
    bucket = urlsplit(settings.store).path
    found = {}
    for survey, (key, columns) in RAW_COLUMNS.items():
        files = f"{bucket}/alerts/{survey}/*/*/*.parquet"
        rows = duckdb.sql(RAW.format(key=key, columns=columns, files=files)).fetchall()
        found[survey] = [len(rows), _digest_of(map(repr, rows))]
    return found


DOORS: dict[str, Callable[[Settings, Names], Any]] = {
    "alerts": alerts,
    "light_curves": light_curves,
    "cones": cones,
    "nights": nights,
    "dead_letters": dead_letters,
    "ledger": ledger,
    "raw_alerts": raw_alerts,
}
"""What asks, by the name of its answer."""


def said(settings: Settings, names: Names) -> dict[str, Any]:
    """The answers of all doors."""
    return {name: ask(settings, names) for name, ask in DOORS.items()}


def keys(folder: Path) -> list[str]:
    """The keys of the objects in a folder."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def _digest_of(lines: Iterable[str]) -> str:
    return digest("\n".join(lines).encode())
