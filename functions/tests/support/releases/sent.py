"""The alerts in the bucket of a release: simulated ones, with small images."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from stampede.alerts.columns import DETECTION
from stampede_local.demo import oracle
from stampede_simulator import cutout_images, lsst
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts import fits_files, made_alerts, mixed_programmes
from tests.support.releases.contents import Names

SIDE = 9
"""Pixels of an image, so that the bucket is small."""
ALERTS = 56
NIGHT = 61003
"""The night (integer MJD) of the alerts of several programmes; simulated ones are of others."""

NIGHTS = {
    **{("ztf", 61012): None, ("ztf", 61013): None, ("ztf", 61016): None, ("ztf", 61020): None},
    **{("lsst", 61007): None, ("lsst", 61012): 2, ("lsst", 61016): 2},
}
"""Survey and MJD of the nights that are stored, and how many alerts of each; None: all."""


@contextmanager
def _small_images() -> Iterator[None]:
    size = cutout_images.size_cards((SIDE, SIDE), -32)
    header = cutout_images.block(
        [cutout_images.card("SIMPLE", True), *size, cutout_images.card("BUNIT", "DN")]
    )
    with (
        patch.object(lsst, "SIZES", (SIDE,)),
        patch.object(cutout_images, "ZTF_SIZE", SIDE),
        patch.object(cutout_images, "ZTF_HEADER", header),
    ):
        yield


def simulated() -> dict[tuple[str, int], list[SimulatedAlert]]:
    """Alerts of LSST and of ZTF by survey and night (integer MJD); a few lack images.

    Until MJD 61007 LSST sends its schema 10.0, later its newest.
    """
    nights: dict[tuple[str, int], list[SimulatedAlert]] = {}
    fields = Fields(objects=2, upgrade_night=8)
    with _small_images():
        for alert in Simulator(2026, fields, Mix(null_cutouts=0.1)).alerts(ALERTS):
            nights.setdefault((alert.survey, int(alert.mjd)), []).append(alert)
    return {night: nights[night][:number] for night, number in NIGHTS.items()}


def mixed() -> list[bytes]:
    """ZTF alerts of two programmes, whose histories have rows of three."""
    small = partial(fits_files.source, SIDE)
    with (
        patch.object(mixed_programmes, "NIGHT", NIGHT),
        patch.object(mixed_programmes, "ztf_source", lambda n: fits_files.ztf(small(seed=n))),
    ):
        return [mixed_programmes.mixed_alert(7000 + own, own) for own in (1, 2)]


def moved(alert: SimulatedAlert) -> bytes:
    """An LSST alert as the survey sends it again under another object, processed later."""
    _, record = oracle.read_record(alert.body)
    source = record["diaSource"]
    source |= {"diaObjectId": int(alert.object_id) + 900}
    source |= {"timeProcessedMjdTai": source["timeProcessedMjdTai"] + 1}
    return made_alerts.confluent(
        record | {"prvDiaSources": None, "prvDiaForcedSources": None, "diaObject": None},
        int.from_bytes(alert.body[1:5], "big"),
    )


def stored() -> list[bytes]:
    """All messages in the bucket."""
    alerts = simulated()
    some = [alert.body for night in alerts.values() for alert in night]
    return [*some, *mixed(), moved(alerts["lsst", 61012][0])]


def names_of(messages: list[bytes]) -> Names:
    """Everything that is in these alerts."""
    heads = [oracle.head(message) for message in messages]
    places = {
        (row["ra"], row["dec"]) for message in messages for row in oracle.detections(message)[:1]
    }
    return Names(
        alerts=sorted({f"{head['survey']}/{head['alert_id']}" for head in heads}),
        objects=sorted({head["object_id"] for head in heads}),
        columns=DETECTION.names,
        cones=sorted(map(list, places)),
        nights=sorted({int(head["mjd"]) for head in heads}),
    )
