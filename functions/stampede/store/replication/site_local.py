"""Objects that describe the objects of their own site. They are not copied to the other."""

from stampede.store.compaction.merge_state import PREFIX as MERGES
from stampede.store.integrity import reconcile_state, scrub_state
from stampede.store.integrity.proof_keys import PROVING
from stampede.store.objects.probes import PROBES
from stampede.store.objects.query_jobs import QUERY_JOBS
from stampede.store.tables.checkpoint import CHECKPOINTS


def of_one_site(key: str) -> bool:
    """Whether an object of that key stays at its site."""
    states = scrub_state.PREFIX, reconcile_state.PREFIX, MERGES, PROVING
    return key.startswith((CHECKPOINTS, PROBES, QUERY_JOBS, *states))
