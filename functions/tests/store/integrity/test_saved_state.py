"""The state of a pass is read while another pass replaces it."""

from dataclasses import dataclass

from stampede.store.integrity import saved_state
from stampede.store.objects.memory import MemoryObjects

FOLDER = "reconcile/example/"


@dataclass(frozen=True)
class State:
    done: int


class Overlapping(MemoryObjects):
    """Another pass saves a state between the listing and the first requests for an object."""

    passes = 0

    def get(self, key: str, *arguments, **more) -> bytes:
        if self.passes:
            self.passes -= 1
            saved_state.save(self, FOLDER, State(2))
        return super().get(key, *arguments, **more)


def test_a_state_that_is_replaced_meanwhile_is_not_taken_for_none() -> None:
    objects = Overlapping()
    saved_state.save(objects, FOLDER, State(1))
    objects.passes = 1
    assert saved_state.load(objects, FOLDER, State) == State(2)


def test_none_is_there_if_no_state_is_whole() -> None:
    objects = MemoryObjects()
    assert saved_state.load(objects, FOLDER, State) is None
    saved_state.save(objects, FOLDER, State(1))
    (info,) = objects.list(FOLDER)
    objects.delete(info.key)
    objects.put(info.key, b"{}")
    assert saved_state.load(objects, FOLDER, State) is None
