import pytest

from stampede_bench.space import erasure_coded


def test_packs_take_little_more_space_than_the_cutouts(measure) -> None:
    found = measure("space")
    judged = [figure for figure in found.values() if figure.must]
    assert len(judged) == 2
    assert all(1 < figure.ratio < 1.2 for figure in judged)  # a pack of three alerts


@pytest.mark.parametrize(
    ("sizes", "unit", "expected"),
    [
        ([1], 4096, 6 * 4096),  # one stripe, however little is in it
        ([16384], 4096, 6 * 4096),
        ([16385], 4096, 12 * 4096),
        ([15_000], 65536, 6 * 65536),
        ([4 << 20, (4 << 20) + 1], 4096, 2 * (6 << 20) + 6 * 4096),
        ([], 4096, 0),
    ],
)
def test_erasure_coding_pads_stripes_and_units(sizes, unit: int, expected: int) -> None:
    assert erasure_coded(sizes, unit) == expected
