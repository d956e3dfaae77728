"""Which packs of packets are merged, by their names and sizes alone."""

from datetime import UTC, datetime

import pytest

from stampede.store.compaction.packet_plan import due_merges, window_nights, window_of
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.packs.pack_name import Merged, PackName, night_of

NIGHT = 60000  # the first of a window of 30 nights
ALL = 99_999


def pack(
    number: int,
    night: int = NIGHT,
    merged: tuple[int, int, str] | None = None,
    size: int = 100,
    programids: tuple[int, ...] = (),
) -> ObjectInfo:
    made = Merged(*merged) if merged else None
    key = PackName.make("packets", night, f"{number:032x}" * 2, programids, made).key
    return ObjectInfo(key, size, "", datetime(2026, 3, 1, tzinfo=UTC))


def numbers(packs: list[ObjectInfo], settled: int = ALL, nights: int = 30) -> list[list[int]]:
    """The packs of each merge, by their places in the list."""
    places = {info.key: number for number, info in enumerate(packs)}
    merges = due_merges(packs, settled, nights)
    return [[places[source.info.key] for source in merge] for merge in merges]


@pytest.mark.parametrize(
    "name",
    [
        PackName.make("packets", 60000, "ab" * 32),
        PackName.make("packets", -1, "ab" * 32, (2, 1), Merged(3, -31, "0110")),
        PackName.make("packets", 60029, "ab" * 32, (), Merged(1, 60000, "")),
        PackName.make("packs", 60000, "ab" * 32, (3,)),
    ],
)
def test_a_key_says_what_its_name_is(name: PackName) -> None:
    assert PackName.parse(name.key) == name
    assert night_of(name.key) == name.night


@pytest.mark.parametrize(
    "key",
    [
        "packets/60000/merged1-60000-all.parquet",
        f"packets/60000/merged-60000-all-{'ab' * 16}.parquet",
        f"packets/60000/merged1-60000-2-{'ab' * 16}.parquet",
        f"packets/60000/{'ab' * 16}-merged1-60000-all.parquet",
        f"alerts/60000/{'ab' * 16}.parquet",
    ],
)
def test_other_keys_are_no_packs(key: str) -> None:
    assert PackName.parse(key) is None
    assert night_of(key) is None


def test_packs_of_a_settled_night_are_merged() -> None:
    packs = [pack(1), pack(2), pack(3, NIGHT + 1), pack(4, NIGHT + 1), pack(5, NIGHT + 2)]
    assert numbers(packs, NIGHT + 30) == [[0, 1], [2, 3]]
    assert numbers(packs, NIGHT + 1) == [[0, 1]]
    assert numbers(packs, NIGHT) == []


def test_programmes_are_never_mixed() -> None:
    packs = [pack(1, programids=(1,)), pack(2, programids=(1,)), pack(3, programids=(1, 2))]
    assert numbers(packs) == [[0, 1]]


def test_many_packs_are_several_merges() -> None:
    packs = [pack(number) for number in range(130)]
    assert [len(merge) for merge in numbers(packs)] == [64, 64, 2]


def test_a_window_is_merged_when_it_is_over() -> None:
    packs = [pack(number, NIGHT + number, (1, NIGHT + number, "")) for number in range(3)]
    assert numbers(packs, NIGHT + 29) == []
    assert numbers(packs, NIGHT + 30) == [[0, 1, 2]]


def test_slices_are_merged_each_for_itself() -> None:
    packs = [
        pack(number, NIGHT + night, (1, NIGHT + night, bits))
        for number, (night, bits) in enumerate([(0, "0"), (0, "1"), (1, "0"), (1, "1")])
    ]
    assert numbers(packs) == [[0, 2], [1, 3]]


def test_finer_slices_go_with_the_coarser_ones() -> None:
    packs = [
        pack(1, NIGHT, (1, NIGHT, "0")),
        pack(2, NIGHT, (1, NIGHT, "1")),
        pack(3, NIGHT + 1, (1, NIGHT + 1, "00")),
        pack(4, NIGHT + 1, (1, NIGHT + 1, "01")),
    ]
    assert numbers(packs) == [[0, 2, 3]]


def test_what_is_merged_stays_as_it_is() -> None:
    packs = [pack(number, NIGHT + 29, (2, NIGHT, format(number, "03b"))) for number in range(8)]
    assert numbers(packs) == []


def test_a_few_late_alerts_do_not_rewrite_a_month() -> None:
    merged = [
        pack(number, NIGHT + 29, (2, NIGHT, format(number, "02b")), 1000) for number in range(4)
    ]
    assert numbers([*merged, pack(9, size=100)]) == []
    assert numbers([*merged, pack(8, size=50), pack(9, size=60)]) == [[4, 5]]
    late = [pack(number, NIGHT + 9, (1, NIGHT + 9, ""), 400) for number in range(10, 12)]
    assert sorted(numbers([*merged, *late])[0]) == [0, 1, 2, 3, 4, 5]


def test_two_packs_that_cannot_be_merged_do_not_keep_a_month_apart() -> None:
    nights = [pack(number, NIGHT + number, (1, NIGHT + number, ""), 1000) for number in range(2)]
    left = [pack(8, NIGHT + 3, size=10), pack(9, NIGHT + 3, size=20)]
    assert numbers([*nights, *left]) == [[2, 3], [0, 1]]


def test_windows_begin_at_multiples() -> None:
    assert window_of(60000) == window_of(60029) == range(60000, 60030)
    assert window_of(-1) == range(-30, 0)
    assert window_of(7, 1) == range(7, 8)


@pytest.mark.parametrize(("days", "nights"), [(None, 30), (400, 30), (100, 10), (19, 1), (3, 1)])
def test_retention_bounds_the_window(days: int | None, nights: int) -> None:
    assert window_nights(days) == nights
