"""Objects that describe the objects of their own site. They are not copied to the other."""

from stampede.store import round_state, scrub_state
from stampede.store.checkpoint import CHECKPOINTS


def of_one_site(key: str) -> bool:
    """Whether an object of that key stays at its site."""
    return key.startswith((CHECKPOINTS, scrub_state.PREFIX, round_state.PREFIX))
