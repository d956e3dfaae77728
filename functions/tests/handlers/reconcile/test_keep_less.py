"""Nights of old alerts are deleted by the commands of the how-to, and nothing else is."""

import re
from pathlib import Path

from stampede.config.settings import Settings
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from tests.cli.conftest import run
from tests.support.store.stored_packets import store, ztf_with_images
from tests.support.store.two_sites import TODAY, environment, second_ceph, sites

__all__ = ["run", "second_ceph", "sites"]  # fixtures
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "keep-less.md"
COMMANDS = re.findall(r"^\$ ((?:STAMPEDE_\w+=\w+ )*)stampede (.+)$", PAGE.read_text(), re.MULTILINE)
LINE = re.compile(r"^expired: (\S+) \(not repaired\)$", re.MULTILINE)
# Of the nights, in days. If the test runs past midnight, the same nights are due.
AGES = (80, 70, 61, 59, 31, 29)
IMAGES, PACKETS = {29}, {29, 31, 59}  # what is left of them
PROOFS = ("proofs/", "proving/")
NOT_NIGHTLY = ("packs/", "packets/", "thumbnails/", "checkpoints/", "state/", "reconcile/", *PROOFS)


def ages(objects: Objects, prefix: str) -> set[int]:
    """The ages of the nights that have packs of a kind."""
    return {TODAY - int(info.key.split("/")[1]) for info in objects.list(prefix)}


def kept(objects: Objects) -> dict[str, str]:
    """The objects that retention has nothing to do with, and their ETags."""
    return {
        info.key: info.etag for info in objects.list("") if not info.key.startswith(NOT_NIGHTLY)
    }


def test_the_commands_delete_what_the_first_has_named(run, serve, sites: Settings) -> None:
    env = {f"STAMPEDE_{name}": value for name, value in environment(sites).items()}
    first, second = open_objects(sites), open_replica(sites)
    for number, age in enumerate(AGES):
        store(sites, [ztf_with_images(100 + number, TODAY - age + 0.4)], first=number)
    assert run("reconcile", "--all", **env).status == 0  # copies all
    for site in (first, second):
        assert ages(site, "packs/") == ages(site, "packets/") == set(AGES)
    before = kept(first)

    def go(command: tuple[str, str]):
        given, words = command
        return run(*words.split(), **env, **dict(each.split("=") for each in given.split()))

    dry, by_hand, audit = COMMANDS
    named = go(dry)
    assert named.status == 1
    assert ages(first, "packs/") == ages(second, "packs/") == set(AGES)
    passes = [go(by_hand)]
    while passes[-1].status:
        assert "not repaired" in passes[-1].out  # three nights in a pass
        passes.append(go(by_hand))
    assert len(passes) == 2
    for site in (first, second):
        assert (ages(site, "packs/"), ages(site, "packets/")) == (IMAGES, PACKETS)
    left = {info.key for info in first.list("")}
    printed = "".join(each.out for each in passes)
    assert set(LINE.findall(named.out)) == set(
        re.findall(r"^expired: (\S+)", printed, re.MULTILINE)
    )
    assert not left & set(LINE.findall(named.out))
    assert kept(first) == before
    proof = go(audit)
    assert proof.status == 0, proof.out
    assert go(dry).status == 0

    given = {name.removeprefix("STAMPEDE_"): value for name, value in env.items()}
    read = serve("read", **given, CUTOUT_DAYS=30, PACKET_DAYS=60)
    for what, days in (("cutouts/science", IMAGES), ("packet", IMAGES & PACKETS)):
        responses = [
            read.http.request("GET", f"{read.url}/v1/alerts/{100 + number}/{what}").status
            for number in range(len(AGES))
        ]
        assert responses == [200 if age in days else 410 for age in AGES], what
