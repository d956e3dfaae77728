import pytest

from stampede_bench.pack_size import named


@pytest.mark.usefixtures("ceph_packages")
def test_limit_and_pack_size_are_compared_with_plain_puts(measure) -> None:
    (fastest,) = (figure for figure in measure("limit").values() if figure.must)
    assert fastest.must.ratio
    assert 0 < fastest.ratio < 2
    found = measure("pack-size")
    for size in (4096, 1 << 20, 64 << 20):
        assert found[f"objects of {named(size)}", "acknowledged each"].value > 0
        assert found[f"objects of {named(size)}", "acknowledged each, p50"].value > 0
    (justified,) = (figure for figure in found.values() if figure.must)
    assert 0 < justified.ratio <= 1
