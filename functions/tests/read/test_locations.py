import itertools

from hypothesis import given
from hypothesis import strategies as st

from stampede.read.locations import GAP, SPAN, CutoutLocation, grouped_by_request

places = st.tuples(
    st.sampled_from([None, "packs/1", "packs/2"]),
    st.integers(0, 3 * SPAN),
    st.integers(1, 2 * GAP),
)


@given(st.lists(places, max_size=30))
def test_a_group_is_what_one_request_can_read(places):
    locations = [
        CutoutLocation(i, "ztf", "science", "Z1", 59000.0, *place, None)
        for i, place in enumerate(places)
    ]
    groups = list(grouped_by_request(locations))
    grouped = [location for _, group in groups for location in group]
    assert sorted(grouped) == sorted(each for each in locations if each.pack)
    assert [(each.pack, each.offset) for each in grouped] == sorted(
        (each.pack, each.offset) for each in grouped
    )
    for pack, group in groups:
        assert {each.pack for each in group} == {pack}
        assert group[-1].offset + group[-1].length - group[0].offset <= SPAN
        for before, after in itertools.pairwise(group):
            assert after.offset - (before.offset + before.length) <= GAP
