import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.events.delivery.offset_tracker import Offsets


def test_without_offsets_there_is_no_position() -> None:
    assert Offsets().position is None


def test_a_gap_holds_the_position() -> None:
    offsets = Offsets()
    for offset in (5, 6, 7):
        offsets.take(offset)
    offsets.finish(6)
    offsets.finish(7)
    assert (offsets.position, offsets.unfinished) == (5, 1)
    offsets.finish(5)
    assert (offsets.position, offsets.unfinished) == (8, 0)


def test_offsets_are_taken_in_order() -> None:
    offsets = Offsets()
    offsets.take(5)
    with pytest.raises(ValueError, match="offset 5 after 5"):
        offsets.take(5)


def test_the_end_of_a_partition_is_its_position_when_all_is_finished() -> None:
    """Behind the last event there may be control records, which nobody gets."""
    offsets = Offsets()
    offsets.reach(3)
    assert offsets.position == 3
    offsets.take(3)
    offsets.take(4)
    offsets.reach(6)
    assert offsets.position == 3
    offsets.finish(4)
    assert offsets.position == 3
    offsets.finish(3)
    assert offsets.position == 6
    offsets.take(8)
    assert offsets.position == 6
    offsets.finish(8)
    assert offsets.position == 9


@given(st.data())
def test_the_position_is_the_first_unfinished_offset(data: st.DataObject) -> None:
    """Checked against the definition, for any order of taking and finishing, with gaps."""
    coming = sorted(data.draw(st.sets(st.integers(0, 200), min_size=1, max_size=40)))
    offsets, taken, open_ = Offsets(), [], []
    while coming or open_:
        if coming and (not open_ or data.draw(st.booleans())):
            taken.append(coming.pop(0))
            open_.append(taken[-1])
            offsets.take(taken[-1])
        else:
            offset = data.draw(st.sampled_from(open_))
            open_.remove(offset)
            offsets.finish(offset)
        finished_before = [o for o in taken if not open_ or o < min(open_)]
        assert offsets.position == (finished_before[-1] + 1 if finished_before else taken[0])
        assert offsets.unfinished == len(open_)
    assert offsets.position == taken[-1] + 1
