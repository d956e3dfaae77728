"""The store under true interleavings: many processes, and any request may fail, repeat or lie."""

import pytest

from tests.store.simulation.campaign import BOTH_SITES, MERGES, ORPHANS, Scenario, run, search
from tests.store.simulation.planted import PLANTED, Bug

STEPS = 30_000  # `make simulate` makes a million
MOST = 400_000  # where one seed in 30 finds a bug, 400 miss it with a chance of one in a million
SEED = 1


@pytest.mark.parametrize("steps", [1_000, pytest.param(STEPS, marks=pytest.mark.nightly)])
def test_nothing_is_lost_doubled_or_promised_too_early(steps: int) -> None:
    made, failure = search(SEED, steps)
    assert failure is None, str(failure)
    assert made >= steps


@pytest.mark.parametrize("steps", [1_000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_a_pack_is_deleted_only_as_an_orphan(steps: int) -> None:
    _, failure = search(SEED, steps, Scenario(actors=ORPHANS))
    assert failure is None, str(failure)


@pytest.mark.parametrize("actors", [MERGES, BOTH_SITES], ids=["one site", "two sites"])
@pytest.mark.parametrize("steps", [1_000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_packs_are_merged_and_nothing_is_lost(steps: int, actors: tuple[str, ...]) -> None:
    _, failure = search(SEED, steps, Scenario(actors=actors))
    assert failure is None, str(failure)


@pytest.mark.nightly
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_bug_planted_on_purpose_is_found(bug: Bug) -> None:
    with bug():
        made, failure = search(SEED, MOST, PLANTED[bug])
    assert failure, f"{made:,} requests did not find it"


@pytest.mark.long
def test_a_seed_is_played_the_same_twice() -> None:
    assert run(3).digest == run(3).digest
    assert run(3).digest != run(4).digest
