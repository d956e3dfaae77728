import pytest

from stampede_bench.storage.pack_size import named


@pytest.mark.usefixtures("ceph_packages")
def test_limit_and_pack_size_are_compared_with_plain_puts(measure) -> None:
    stamps, files = (figure for figure in measure("limit").values() if figure.must)
    assert stamps.must.ratio
    assert 0 < stamps.ratio < 2
    assert stamps.ratio < files.ratio  # fewer bytes are stored than LSST sends
    found = measure("pack-size")
    for size in (4096, 1 << 20, 64 << 20):
        assert found[f"objects of {named(size)}", "acknowledged each"].value > 0
        assert found[f"objects of {named(size)}", "acknowledged each, p50"].value > 0
    (justified,) = (figure for figure in found.values() if figure.must)
    assert 0 < justified.ratio <= 1
