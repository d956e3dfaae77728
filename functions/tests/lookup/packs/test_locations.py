import itertools

from hypothesis import given
from hypothesis import strategies as st

from stampede.lookup.packs.locations import GAP, SPAN, grouped_by_request
from stampede.store.parquet.writer import Range

ranges = st.builds(Range, st.integers(0, 3 * SPAN), st.integers(1, 2 * GAP))


@given(st.lists(ranges, max_size=30))
def test_a_group_is_what_one_request_can_read(wanted):
    groups = list(grouped_by_request(wanted))
    assert [one for group in groups for one in group] == sorted(set(wanted))
    for group in groups:
        assert group[-1].offset + group[-1].length - group[0].offset <= SPAN
        for before, after in itertools.pairwise(group):
            assert after.offset - (before.offset + before.length) <= GAP
