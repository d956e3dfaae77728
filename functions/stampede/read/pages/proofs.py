"""Routes of the pages of proofs."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from stampede.errors import Damaged, NotFound
from stampede.proofs.night_proof import FATES, NightProof
from stampede.proofs.proof_reader import NoProof, ProofReader
from stampede.read.pages import page as pages
from stampede.read.pages.nights import parse_night
from stampede.read.service import service_of

PROOFS = 50
"""Proofs on a page."""


class Fate(NamedTuple):
    """What became of offsets: one of `FATES`, how many offsets, of how many partitions."""

    name: str
    offsets: int
    partitions: int


class ShownProof(NamedTuple):
    """A proof on its page.

    Attributes
    ----------
    latest
        Whether it is the latest revision.
    example
        The id of an alert in it; None if it has none.
    fault
        What is wrong with its entries; empty if nothing is.
    """

    proof: NightProof
    latest: bool
    fates: list[Fate]
    example: int | None
    fault: str


async def proofs_page(request: Request) -> Response:
    """`/proofs`: the proofs of nights, the latest night first."""
    service, query = service_of(request), request.query_params
    before = parse_night(query["before"], "before") if "before" in query else None
    every = await service.run(service.proofs.nights)
    left = [each for each in every if before is None or each[1] < before]
    # All surveys of a night are on one page: the next one begins with another night.
    last = left[PROOFS - 1][1] if len(left) > PROOFS else None
    part = [each for each in left if last is None or each[1] >= last]
    found = await service.run(lambda: [service.proofs.sound(*each) for each in part])
    text = pages.page(
        "proofs.html",
        proofs=[(*place, proof) for place, proof in zip(part, found, strict=True)],
        total=len(every),
        older=last if len(left) > len(part) else None,
        before=before,
    )
    return pages.html(text)


async def proof_page(request: Request) -> Response:
    """`/proofs/{survey}/{night}`: the latest proof of a night, or the one with a SHA-256."""
    service = service_of(request)
    survey = request.path_params["survey"]
    night = parse_night(request.path_params["night"], "night")
    sha256 = request.query_params.get("sha256")
    shown = await service.run(_shown, service.proofs, survey, night, sha256)
    # A proof stays when retention has removed the packs of its night.
    listed = bool(await service.run(service.night_alerts.packs, night))
    return pages.html(pages.page("proof.html", night=night, listed=listed, **shown._asdict()))


def _shown(proofs: ProofReader, survey: str, night: int, sha256: str | None) -> ShownProof:
    try:
        latest = proofs.latest(survey, night)
        proof = latest if sha256 in (None, latest.sha256) else proofs.named(survey, night, sha256)
    except NoProof as error:
        raise NotFound(f"{error.message}: see /proofs") from None
    fates = []
    for name in FATES:
        offsets = proof.offsets(name)
        fates.append(Fate(name.replace("_", " "), len(offsets), len(offsets.partitions())))
    example, fault = None, ""
    try:
        example = proofs.first_alert(proof)
    except (Damaged, NotFound) as error:
        fault = error.message
    return ShownProof(proof, proof.sha256 == latest.sha256, fates, example, fault)
