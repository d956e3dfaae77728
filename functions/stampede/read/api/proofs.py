"""Routes of the proofs of nights."""

from collections.abc import Iterable
from math import floor

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.errors import TooLarge
from stampede.lookup.errors import BadParameter
from stampede.lookup.response_warnings import may_lack
from stampede.proofs import ranges
from stampede.proofs.night_proof import NightProof
from stampede.proofs.proof_reader import DamagedProof
from stampede.read.api.cutouts import locations
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE, Representation, etag

BYTES = "application/octet-stream"
DEFAULT, MOST = 30, 1000
LATEST_NIGHT = 1_000_000


async def get_proofs(request: Request) -> Response:
    """The latest proofs of nights, the latest night first; `next` is `before` of those earlier.

    `damaged` has the nights whose proof cannot be read, if there are any.
    """
    service, query = service_of(request), request.query_params
    survey = parameters.survey(query)
    most = parameters.whole_number(query, "limit", 1, MOST) or DEFAULT
    before = parameters.whole_number(query, "before", 0, LATEST_NIGHT)
    found = await service.run(service.proofs.newest, most, survey, before)
    sound, damaged = _parted(found)
    body: dict[str, object] = {"proofs": [_brief(proof) for proof in sound]}
    if damaged:
        body["damaged"] = [each._asdict() for each in damaged]
    if len({each.night for each in found}) == most:
        body["next"] = found[-1].night
    return JSONResponse(body, headers={"Cache-Control": REVALIDATE})


def _place(request: Request) -> tuple[str, int]:
    """Survey and night in the path."""
    survey, text = request.path_params["survey"], request.path_params["night"]
    if not (text.isascii() and text.isdigit() and int(text[:10]) < LATEST_NIGHT):
        raise BadParameter("night", f"must be a night, an integer MJD: {text!r:.40}")
    return survey, int(text)


async def get_proof(request: Request) -> Response:
    """The latest proof of a night, or the one with a SHA-256, byte for byte as it is stored."""
    service = service_of(request)
    survey, night = _place(request)
    sha256 = request.query_params.get("sha256")
    if sha256 is None:
        proof = await service.run(service.proofs.latest, survey, night)
    else:
        proof = await service.run(service.proofs.named, survey, night, sha256)
    headers = {"Content-Disposition": f'inline; filename="{survey}-{night}.json"'}
    document = Representation(etag(proof.data), "application/json", headers, REVALIDATE)
    return document.not_modified(request) or document.respond(request, proof.data)


async def post_ranges(request: Request) -> Response:
    """The digest of each range of ids of a night: 32 bytes each, as they come.

    The body has the ids at which ranges begin, but for the first: decimal, in ascending order, with
    white space between them.
    """
    service = service_of(request)
    survey, night = _place(request)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > ranges.MOST_BYTES:
            raise TooLarge(f"the body has more than {ranges.MOST_BYTES:,} bytes")
    try:
        begins = ranges.parse(bytes(body))
    except ValueError as error:
        raise BadParameter("body", str(error)) from None
    with service.bulk_limit.slot(request.state.client):
        digests = await service.run_bulk(service.proofs.range_digests, survey, night, begins)
    return Response(digests, media_type=BYTES, headers={"Cache-Control": REVALIDATE})


async def get_entries(request: Request) -> Response:
    """The entries of a night from one id to before another: 40 bytes each, as they are stored."""
    service = service_of(request)
    query = request.query_params
    first = parameters.alert_id(query["from"], "from") if query.get("from", "0") != "0" else 0
    until = parameters.alert_id(query["until"], "until") if "until" in query else None
    with service.bulk_limit.slot(request.state.client):
        data = await service.run_bulk(service.proofs.entries, *_place(request), first, until)
    return Response(data, media_type=BYTES, headers={"Cache-Control": REVALIDATE})


async def get_alert_proof(request: Request) -> Response:
    """The path from an alert to the root of its night's tree."""
    service = service_of(request)
    alert = (await locations(request))[0]
    night = floor(alert.mjd)
    body = await service.run(service.proofs.of_alert, alert.alert_id, alert.survey, night)
    return JSONResponse(body, headers={"Cache-Control": REVALIDATE})


async def get_key(request: Request) -> Response:
    """The public keys of the latest proofs, Ed25519, 32 bytes each as base64."""
    service = service_of(request)
    sound, _ = _parted(await service.run(service.proofs.newest, DEFAULT))
    keys = sorted({proof.public_key for proof in sound if proof.public_key})
    return JSONResponse({"ed25519": keys}, headers={"Cache-Control": REVALIDATE})


def _parted(
    found: Iterable[NightProof | DamagedProof],
) -> tuple[list[NightProof], list[DamagedProof]]:
    """The proofs, and the damaged ones, which the response lacks."""
    sound, damaged = list[NightProof](), list[DamagedProof]()
    for each in found:
        if isinstance(each, DamagedProof):
            may_lack(f"the proof of night {each.night} of {each.survey} is damaged")
            damaged.append(each)
        else:
            sound.append(each)
    return sound, damaged


def _brief(proof: NightProof) -> dict[str, object]:
    return {
        "survey": proof.survey,
        "night": proof.night,
        "revision": proof.revision,
        "alerts": proof.statement["alerts"],
        "entries": proof.count,
        "root": proof.root.hex(),
        "signed": proof.is_signed,
        "href": f"/v1/proofs/{proof.survey}/{proof.night}",
    }
