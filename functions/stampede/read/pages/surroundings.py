"""What a survey says in an alert of what lies near its object, beyond its own measurements."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import quote

from stampede.alerts import surveys
from stampede.alerts.moving.designations import path_form, standard_form
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import CutoutLocation

Record = Mapping[str, Any]

ZTF_PIXEL = 1.012
"""Arcseconds: ZTF gives the distance in its reference image in pixels."""
LEAST = -900.0
"""ZTF writes -999 for no value."""


class Fact(NamedTuple):
    """One thing that a survey says: its name and text, and the fields that it comes from.

    `href` is the page of what it names, if there is one here.
    """

    name: str
    text: str
    fields: str
    href: str = ""


def surroundings(lookup: Lookup, alert: CutoutLocation) -> list[Fact]:
    """What an alert says of its object's surroundings; empty if its packet is not stored.

    It is noted if the packet cannot be read. Raises `StoreDown`.
    """
    if alert.survey not in _SURVEYS:
        return []
    from stampede.lookup.alert_fields import fields_of  # few requests need fastavro

    names, _ = _SURVEYS[alert.survey]
    try:
        found = lookup.record(alert.alert_id, alert.survey, partial(fields_of, names=names))
    except BadParameter:  # a version of the schema that lacks one of them
        found = lookup.record(alert.alert_id, alert.survey, fields_of)
    return facts(alert.survey, found or {})


def facts(survey: str, alert: Record) -> list[Fact]:
    """What the fields of an alert say of its object's surroundings."""
    _, read = _SURVEYS[survey]
    return [*read(alert)]


def _of_ztf(alert: Record) -> Iterator[Fact]:
    candidate = alert.get("candidate") or {}
    distance, score = (_finite(candidate, name) for name in ("distpsnr1", "sgscore1"))
    if distance is not None:
        texts = [f"{distance:.1f}″ away"]
        if score is not None:
            texts.append(f"star score {score:.2f}")
        texts += _magnitude(candidate, "srmag1", "r")
        yield Fact("nearest Pan-STARRS source", ", ".join(texts), "distpsnr1, sgscore1, srmag1")
    pixels = _finite(candidate, "distnr")
    if pixels is not None:
        texts = [f"{pixels * ZTF_PIXEL:.1f}″ away", *_magnitude(candidate, "magnr", "", "sigmagnr")]
        yield Fact("nearest in the reference image", ", ".join(texts), "distnr, magnr, sigmagnr")
    distance = _finite(candidate, "neargaia")
    if distance is not None:
        texts = [f"{distance:.1f}″ away", *_magnitude(candidate, "maggaia", "G")]
        yield Fact("nearest Gaia source", ", ".join(texts), "neargaia, maggaia")
    name, distance = candidate.get("ssnamenr"), _finite(candidate, "ssdistnr")
    if name not in (None, "", "null") and distance is not None:
        texts = [f"{name}, {distance:.0f}″ away", *_magnitude(candidate, "ssmagnr", "")]
        known = surveys.named("ztf").MOVING
        near = known is not None and 0 <= distance <= known.most_offset
        href = _body(str(name)) if near else ""
        fields = "ssnamenr, ssdistnr, ssmagnr"
        yield Fact("nearest solar-system object", ", ".join(texts), fields, href)


def _of_rubin(alert: Record) -> Iterator[Fact]:
    source, orbit = (alert.get(name) or {} for name in ("ssSource", "mpc_orbits"))
    name = source.get("designation") or orbit.get("designation")
    if name:
        fields = "ssSource.designation, mpc_orbits.designation"
        yield Fact("solar-system object", str(name), fields, _body(str(name)))
    for field, about, unit in (
        ("phaseAngle", "phase angle", "°"),
        ("helioRange", "distance from the Sun", " au"),
        ("topoRange", "distance from the Earth", " au"),
    ):
        value = _finite(source, field)
        if value is not None:
            yield Fact(about, f"{value:.3g}{unit}", f"ssSource.{field}")


def _body(designation: str) -> str:
    return f"/moving/{quote(path_form(standard_form(designation)))}"


_SURVEYS: dict[str, tuple[tuple[str, ...], Callable[[Record], Iterator[Fact]]]] = {
    "ztf": (("candidate",), _of_ztf),
    "lsst": (("ssSource", "mpc_orbits"), _of_rubin),
}
"""By survey the fields that it takes, and what makes facts of them."""


def _finite(record: Record, name: str) -> float | None:
    """A number that was measured; None otherwise."""
    value = record.get(name)
    if value is None or not isfinite(value) or value < LEAST:
        return None
    return float(value)


def _magnitude(record: Record, name: str, band: str, error: str = "") -> list[str]:
    value = _finite(record, name)
    if value is None:
        return []
    sigma = _finite(record, error)
    return [f"{band} {value:.2f}{f' ± {sigma:.2f}' if sigma else ''} mag".strip()]
