"""Route of the API's documentation, rendered from its OpenAPI description."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from stampede.errors import Damaged, NotFound
from stampede.lookup.lookup import Lookup
from stampede.proofs.proof_reader import DamagedProof, ProofReader
from stampede.read.openapi import describe
from stampede.read.pages import page as pages
from stampede.read.pages.api_examples import PARTS, Operation, operations, prose
from stampede.read.pages.nights import shown_alerts
from stampede.read.pages.page import ShownAlert
from stampede.read.plots.ticks import day_of
from stampede.read.service import service_of
from stampede.read.summaries.latest_alerts import LatestAlert
from stampede.read.summaries.nights import nights_of


async def docs_page(request: Request) -> Response:
    """`/docs`: each route, its parameters, and commands with ids of the latest alerts."""
    service = service_of(request)
    latest = await service.run_ledger(service.latest.alerts)
    known = await service.run(_known, service.lookup, latest)
    known.setdefault("", {}).update(await service.run(_designation, service.lookup))
    known |= await service.run(_proven, service.proofs, known)
    api = describe()
    text = pages.page(
        "docs.html",
        url=service.access.proxies.origin_of(request) or "http://127.0.0.1:8080",
        about=prose(api["info"]["description"]),
        parts=_parts(operations(api, known)),
        stored=bool(latest),
    )
    return pages.html(text, pages.WITH_SCRIPT)


def _parts(every: Sequence[Operation]) -> dict[str, list[Operation]]:
    """The operations by the part of the page that they belong to."""
    return {part: [one for one in every if one.part == part] for part in PARTS}


def _known(lookup: Lookup, latest: Sequence[LatestAlert]) -> dict[str, dict[str, str]]:
    """Values of parameters, by route: of the latest alert that has what the route gives."""
    alerts = shown_alerts(lookup, latest)
    if not alerts:
        return {}
    first = next((alert for alert in alerts if alert.sent), alerts[0])
    kept = lookup.kept_packets([alert.alert_id for alert in alerts])
    packets = {(packet.alert_id, packet.survey) for packet in kept}
    with_packet = next((one for one in alerts if (one.alert_id, one.survey) in packets), first)
    with_thumbnail = next((alert for alert in alerts if alert.has_thumbnail), first)
    ra, dec = _position(lookup, first)
    everywhere = {
        **_of_alert(first),
        "kind": max(first.sent, default="science", key=lambda kind: kind == "science"),
        "object_id": first.object_id,
        "id": first.object_id,
        "date": day_of(nights_of(lookup.objects)[0]),
        **{"ra": ra, "dec": dec, "radius": "5", "RA": ra, "DEC": dec, "SR": "0.01"},
        "csv": f"{ra},{dec}",
    }
    return {
        "": everywhere,
        "/v1/cutouts": {"body": str(first.alert_id)},
        "/v1/lightcurves": {"body": first.object_id},
        "/v1/links/alerts": {"body": f"ID={first.alert_id}", "ID": str(first.alert_id)},
        "/v1/links/objects": {"body": f"ID={first.object_id}", "ID": first.object_id},
        "/v1/alerts/{alert_id}/packet": _of_alert(with_packet),
        "/v1/alerts/{alert_id}/schema": _of_alert(with_packet),
        "/v1/alerts/{alert_id}/thumbnail": _of_alert(with_thumbnail),
    }


def _designation(lookup: Lookup) -> dict[str, str]:
    """Any body of the solar system of which alerts are stored."""
    names = lookup.moving.keys_with_prefix("", 1)
    return {"designation": names[0]} if names else {}


def _proven(
    proofs: ProofReader, known: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Values of parameters of the routes of proofs: of the latest night that has one."""
    try:
        for proof in proofs.newest(1):
            if isinstance(proof, DamagedProof):
                continue
            alert_id = proofs.first_alert(proof)
            alert = {"alert_id": str(alert_id), "survey": proof.survey} if alert_id else {}
            night = {"survey": proof.survey, "night": str(proof.night)}
            return {
                "/proofs/{survey}/{night}": night,
                **{f"/v1/proofs/{{survey}}/{{night}}{end}": night for end in ("", "/entries")},
                "/v1/proofs/{survey}/{night}/ranges": night | {"body": str(alert_id or 1)},
                "/v1/alerts/{alert_id}/proof": alert,
            }
    except Damaged:
        pass
    return {}


def _of_alert(alert: ShownAlert) -> dict[str, str]:
    return {"alert_id": str(alert.alert_id), "survey": alert.survey}


def _position(lookup: Lookup, alert: ShownAlert) -> tuple[str, str]:
    """The last known position of an alert's object, in degrees; else any."""
    try:
        position = pages.position_of(lookup.light_curves.of_object(alert.object_id))
    except NotFound:
        position = None
    ra, dec = position or (10.68, 41.27)
    return f"{ra:.6f}", f"{dec:.6f}"
