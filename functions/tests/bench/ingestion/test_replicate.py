import pytest

from stampede_bench.ingestion.replicate import Moved, at_work


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages")
def test_replicate_has_a_ratio_for_each_direction(measure) -> None:
    found = measure("replicate")
    together = found.pop(("all four ways", "150 ms, of the rate at 0 ms, mean of all turns"))
    assert together.requirement is not None
    assert together.spread[0] <= together.value <= together.spread[1]
    assert {subject for subject, _ in found} == {
        f"{direction}, {scheme}" for direction in ("push", "pull") for scheme in ("HTTP", "HTTPS")
    }
    for subject in {subject for subject, _ in found}:
        assert found[subject, "150 ms"].requirement is not None
        assert found[subject, "150 ms"].ratio > 0


def test_of_an_object_under_way_a_part_counts() -> None:
    # From 2 s, when the first of four is copied, until 4 s, when the last begins: half of `b`.
    moved = [Moved(0, 2, "a"), Moved(1, 3, "b"), Moved(3, 4, "c"), Moved(4, 6, "d")]
    assert at_work(moved, dict.fromkeys("abcd", 100)) == pytest.approx((50 + 100) / 2)


def test_objects_that_begin_at_once_count_from_the_first_to_the_last() -> None:
    moved = [Moved(0, 1, "a"), Moved(0, 2, "b")]
    moved += [Moved(0, 2, "c"), Moved(0, 2, "d")]
    assert at_work(moved, dict.fromkeys("abcd", 100)) == pytest.approx(150)
