"""Alerts to measure with: as large as real ones, each of another object.

The alerts of one exposure of a survey are of different objects too. Alerts of the same object would
share history rows, which would make a batch smaller.
"""

import gzip
from collections.abc import Iterator
from itertools import chain, cycle, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stampede.alerts.container import varint
from stampede.errors import SetupError
from stampede.ingest import files
from stampede_local.demo.oracle import read_record
from stampede_simulator.alert_bytes import NULL, SOME, SimulatedAlert
from stampede_simulator.simulator import Fields, Mix, Simulator

SHORT = 17_280  # bytes of a short cutout: six FITS blocks
# History rows of Rubin's alerts in the mean, spread from 0 to twice as many. Eight real alerts at
# hand have 573; a survey that begins has fewer.
LSST_HISTORY, LONG_LSST_HISTORY = 250, 573
ZTF_HISTORY = 55  # rows of thirty days, in packets of 66 KB
_LSST = Mix(lsst_share=1.0, solar_system=0.0, null_cutouts=0.0)
EXPOSURES = 0.8  # of a field per night in the simulator


class Load(NamedTuple):
    """Messages of one survey, a description, and (alert id, object id) of each if known.

    Figures of alerts that are not `usual` have no bounds.
    """

    survey: str
    description: str
    messages: list[bytes]
    ids: list[tuple[int, str]]
    usual: bool = True

    @property
    def size(self) -> float:
        """Mean bytes of a message."""
        return sum(map(len, self.messages)) / len(self.messages)

    @property
    def title(self) -> str:
        """A description with the survey and the mean size."""
        return f"{self.survey.upper()} alerts of {self.size / 1e3:.0f} KB, {self.description}"


def simulated(survey: str, count: int, rows: int, objects: int | None = None) -> Load:
    """`count` alerts with `rows` history rows in the mean; of ZTF's, those of thirty days."""
    objects = objects or count
    if survey == "lsst":
        fields = Fields.of_history(rows, objects)
        alerts = [*Simulator(1, fields, _LSST, keep_light_curves=False).alerts(count)]
    else:
        alerts = [*_late(survey, count, rows, objects)]
    mean = np.mean([len(alert.points) - 1 for alert in alerts])
    what = f"simulated, {mean:.0f} history rows in the mean"
    return Load(survey, what, *_parts(alerts), usual=rows <= LSST_HISTORY)


def exposures(number: int, count: int) -> Load:
    """LSST alerts of so many visits and detectors, `count` of each, which share their PSFs."""
    alerts = [alert for seed in range(1, number + 1) for alert in _exposed(seed, count)]
    what = f"simulated, {count} of each visit and detector"
    return Load("lsst", what, *_parts(alerts))


def _exposed(seed: int, count: int) -> list[SimulatedAlert]:
    """The alerts of the first visit and detector that has enough."""
    fields = Fields(objects=3 * count, nights=20)
    stream = Simulator(seed, fields, _LSST, keep_light_curves=False).alerts(90 * count)
    for _, group in groupby(stream, _exposure):
        alerts = list(islice(group, count))
        if len(alerts) == count:
            return alerts
    raise ValueError(f"no simulated visit has {count} alerts")


def different_exposures(count: int) -> Load:
    """`count` LSST alerts, each of another visit or detector: no two share a PSF."""
    alerts: dict[tuple[Any, ...], SimulatedAlert] = {}
    simulator = Simulator(1, Fields(objects=1, nights=5), _LSST, keep_light_curves=False)
    for alert in simulator.alerts(9 * count):
        alerts.setdefault(_exposure(alert), alert)
    first = [*alerts.values()][:count]
    return Load("lsst", "simulated, each of another visit or detector", *_parts(first))


def _exposure(alert: SimulatedAlert) -> tuple[int | None, int | None]:
    return alert.points[0].visit, alert.points[0].detector


def short_cutouts(count: int, rows: int) -> Load:
    """LSST alerts whose cutouts are cut to 17,280 bytes, the size that most prototypes assume."""
    alerts = list(_late("lsst", count, rows, count))
    _, ids = _parts(alerts)
    return Load("lsst", "the same with short cutouts", [*map(_shortened, alerts)], ids)


def real(directory: Path, count: int) -> Iterator[Load]:
    """Real alerts of both surveys, each repeated under other ids until there are `count`."""
    for survey in ("lsst", "ztf"):
        paths = sorted((directory / survey).glob("*.avro*"))
        if not paths:
            raise SetupError(f"{directory / survey} has no real alerts")
        messages = [
            gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            for path in paths
        ]
        renamed = [_renamed(message, copy) for copy, message in _numbered(messages, count)]
        yield Load(survey, f"real ({len(paths)}, repeated under other ids)", renamed, [])


def real_detectors(directory: Path) -> Iterator[Load]:
    """Real LSST alerts, each of another visit and detector, if there are any; not repeated."""
    if paths := sorted((directory / "lsst-detectors").glob("*.avro")):
        messages = [alert.data for alert in files.read(paths)]
        yield Load("lsst", f"real ({len(messages)}, of different detectors)", messages, [])


def _parts(alerts: list[SimulatedAlert]) -> tuple[list[bytes], list[tuple[int, str]]]:
    ids = [(alert.alert_id, alert.object_id) for alert in alerts]
    return [alert.body for alert in alerts], ids


def first_night(rows: int, nights: int) -> int:
    """A night, of so many, before which hardly any object has so many history rows.

    An object gets about two rows a night, so most have fewer by then.
    """
    return min(2 * rows // 5, nights - 1)


def _late(survey: str, count: int, rows: int, objects: int) -> Iterator[SimulatedAlert]:
    """The alerts of a field, from the first with more than `rows` history rows."""
    lsst = survey == "lsst"
    # A detection adds a row, and forced photometry another. Bright objects have more.
    nights = min(340, round(rows / 2 / EXPOSURES * 2) + 10)
    simulator = Simulator(
        fields=Fields(objects=objects, nights=nights, first_night=first_night(rows, nights)),
        mix=Mix(lsst_share=float(lsst), solar_system=0.0, null_cutouts=0.0),
        keep_light_curves=False,
    )
    stream = simulator.alerts(nights * objects * 4)
    for alert in stream:
        if len(alert.points) > rows:
            yield from islice(chain([alert], stream), count)
            return


def _shortened(alert: SimulatedAlert) -> bytes:
    cutouts = [fits for fits in map(alert.fits.get, ("difference", "science", "template")) if fits]
    tail = sum(len(SOME) + len(varint(len(fits))) + len(fits) for fits in cutouts)
    parts = [SOME + varint(SHORT) + fits[:SHORT] for fits in cutouts]
    return alert.body[:-tail] + b"".join(parts) + NULL * (3 - len(cutouts))


def _numbered(messages: list[bytes], count: int) -> Iterator[tuple[int, bytes]]:
    return islice(enumerate(cycle(messages)), count)


def _renamed(message: bytes, number: int) -> bytes:
    """The message with another alert id and object id of the same length."""
    survey, record = read_record(message)
    if survey == "ztf":
        name = record["objectId"].encode()
        ids, names = [record["candid"]], {name: name[:5] + f"{number:07}".encode()}
    else:
        own = record["diaSource"]
        ids, names = [own["diaSourceId"], own["diaObjectId"]], {}
    for old in filter(None, ids):
        message = message.replace(varint(old), varint(old ^ (number + 1) << 8))
    for name, other in names.items():
        message = message.replace(name, other)
    return message
