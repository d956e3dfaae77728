"""A copy of a store has its proofs, and fail-over and restoring change none."""

from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.proofs.checks import ProofChecker
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from tests.support.proofs import KEY, alerts, bodies, prove, settings_in
from tests.support.store.stored_packets import store

COUNT = 60


@pytest.fixture
def sites(tmp_path: Path) -> Settings:
    """Two sites, and the same after a pass that copies; the first has proofs."""
    both = settings_in(tmp_path).model_copy(
        update={"replica": f"file://{tmp_path}/second", "grace_seconds": 0, "proof_days": None}
    )
    store(both, bodies(alerts(COUNT)))
    prove(open_objects(both))
    Reconciler(both).run()
    return both


def proofs(objects: Objects) -> dict[str, bytes]:
    """Documents and entries, by key."""
    return {info.key: objects.get(info.key) for info in objects.list("proofs/")}


def faults(objects: Objects) -> list[str]:
    return [each.fault for each in ProofChecker(objects, KEY.public_key, None).faults()]


def test_the_second_site_proves_the_same(sites: Settings) -> None:
    first, second = open_objects(sites), open_replica(sites)
    assert proofs(first)
    assert proofs(second) == proofs(first)
    assert faults(second) == []


def test_after_a_fail_over_nothing_is_proven_anew(sites: Settings, tmp_path: Path) -> None:
    second = open_replica(sites)
    before = proofs(second)
    assert prove(second) == []  # the packs are the same, so their proofs are
    now_first = sites.model_copy(update={"store": sites.replica, "replica": ""})
    store(now_first, bodies(alerts(COUNT)), first=COUNT)  # all of them again, as a replay sends
    assert prove(second) == []
    assert proofs(second) == before
    store(now_first, bodies(alerts(2 * COUNT)[COUNT:]), first=2 * COUNT)
    assert prove(second)  # alerts that came after it are in revisions
    assert faults(second) == []


def test_a_bucket_that_was_lost_is_restored_with_its_proofs(sites: Settings) -> None:
    first, second = open_objects(sites), open_replica(sites)
    before = proofs(first)
    for info in [*first.list("")]:
        first.delete(info.key)
    back = sites.model_copy(update={"store": sites.replica, "replica": sites.store})
    Reconciler(back).run()
    assert proofs(first) == before == proofs(second)
    assert faults(first) == []
    assert prove(first) == []
