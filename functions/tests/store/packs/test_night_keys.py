"""The folders of nights: found without listing what is in them, and listed in a few requests."""

from hypothesis import given
from hypothesis import strategies as st

from stampede.store.objects.memory import MemoryObjects
from stampede.store.packs.night_keys import NightFolders, folder_of, night_of_folder, walk
from tests.support.store.watched_objects import Watched

OTHERS = [
    "deadletters/cutouts/a.parquet",
    "stray",
    "tables/cutouts/a.parquet",
    "tables/detections/b.parquet",
]
FOREIGN = ["alerts/lsst/notes", "packs/60001x/a", "packs/notes", "packs/60002-z"]


def store(nights: range, packs: int = 1) -> MemoryObjects:
    objects = MemoryObjects()
    for night in nights:
        for folder in ("packs", "thumbnails", "packets", "alerts/lsst/s1", "alerts/ztf/s2"):
            for number in range(packs):
                objects.put(f"{folder}/{night}/{number:04}.parquet", b"x")
    for key in OTHERS + FOREIGN:
        objects.put(key, b"x")
    return objects


def keys(objects: MemoryObjects) -> list[str]:
    return [info.key for info in objects.list("")]


def test_all_folders_together_are_the_whole_store() -> None:
    objects = store(range(60000, 60004))
    objects.put("packs/-12/a.parquet", b"before MJD 0")
    folders = NightFolders(walk(objects))
    assert len(folders.nights) == 5 * 4 + 1
    listed = [info.key for info in folders.list(objects, folders.nights)]
    assert listed == sorted(keys(objects))


def test_chosen_nights_and_everything_outside_of_nights_in_key_order() -> None:
    objects = store(range(60000, 60004))
    folders = NightFolders(walk(objects))
    chosen = ["packs/60001/", "packs/60002/", "thumbnails/60000/", "alerts/ztf/s2/60003/"]
    expected = OTHERS + FOREIGN
    expected += [key for key in keys(objects) if key.startswith(tuple(chosen))]
    assert [info.key for info in folders.list(objects, chosen)] == sorted(expected)
    packs = [info.key for info in folders.list(objects, chosen, "packs/")]
    assert packs == [key for key in sorted(expected) if key.startswith("packs/")]


SEGMENTS = [
    "alerts",
    "packs",
    "thumbnails",
    "tables",
    "60000",
    "60001",
    "6000",
    "-7",
    "a",
    "60000!",
]
KEYS = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=5).map("/".join)


@given(st.sets(KEYS, max_size=40), st.sets(KEYS, max_size=10), st.data())
def test_any_keys_are_listed_in_order_and_by_their_nights(
    names: set[str], others: set[str], data: st.DataObject
) -> None:
    """Whatever keys two sites have: each lists its own, of the nights that both know."""
    first, second = MemoryObjects(), MemoryObjects()
    for site, of_site in ((first, names), (second, names | others)):
        for key in of_site:
            site.put(key, b"x")
    folders = NightFolders(walk(first) | walk(second))
    chosen = {folder for folder in folders.nights if data.draw(st.booleans())}
    for site in (first, second):
        for prefix in ("", "packs/"):
            listed = [info.key for info in folders.list(site, chosen, prefix)]
            assert listed == [
                info.key
                for info in site.list(prefix)
                if not folder_of(info.key) or folder_of(info.key) in chosen
            ]
        some = sorted(chosen)
        fitting = folders.fitting([site], some, 3)
        count = sum(folder_of(info.key) in some[:fitting] for info in site.list(""))
        assert count <= 3 or fitting == 1


def test_a_night_that_appears_later_does_not_break_the_order() -> None:
    objects = store(range(60000, 60004, 3))
    folders = NightFolders(walk(objects))
    for key in ("thumbnails/60001/new.parquet", "thumbnails/stray", "thumbnails/60000!"):
        objects.put(key, b"x")
    listed = [info.key for info in folders.list(objects, folders.nights)]
    assert listed == sorted(listed)
    assert set(listed) == set(keys(objects)) - {"thumbnails/stray", "thumbnails/60000!"}


def test_a_walk_does_not_list_what_is_in_the_nights() -> None:
    few, many = Watched(store(range(60000, 60010))), Watched(store(range(60000, 60010), packs=50))
    assert walk(few) == walk(many)
    assert few.calls == many.calls  # two names a request


def test_neighbours_are_listed_together() -> None:
    """One request for many keys, not one for each folder."""
    watched = Watched(store(range(60000, 60100)))
    folders = NightFolders(walk(watched))
    watched.calls.clear()
    assert len(list(folders.list(watched, folders.nights, "thumbnails/"))) == 100
    assert watched.count("list") == 51  # of two keys, and one that shows the end


def test_as_many_folders_as_fit() -> None:
    objects = store(range(60000, 60010), packs=10)
    folders = NightFolders(walk(objects))
    nights = [folder for folder in folders.nights if folder.startswith("packs/")]
    for most, fitting in ((1, 1), (10, 1), (19, 1), (20, 2), (99, 9), (100, 10), (1000, 10)):
        assert folders.fitting([objects], nights, most) == fitting
    assert folders.fitting([objects, objects], nights, 40) == 2
    assert folders.fitting([MemoryObjects(), objects], nights, 40) == 4
    assert folders.fitting([objects], [], 40) == 0


def test_counting_lists_no_more_than_that() -> None:
    watched = Watched(store(range(60000, 60100), packs=10))
    folders = NightFolders(walk(watched))
    watched.calls.clear()
    folders.fitting([watched, watched], folders.nights, 40)
    assert watched.count("list") <= 22  # of two keys


def test_the_night_of_a_folder() -> None:
    assert night_of_folder("packs/60000/") == night_of_folder("alerts/lsst/s/60000/") == 60000
    assert night_of_folder("packets/-12/") == -12
    for other in ("packs/", "packs/x/", "tables/60000/", "alerts/60000/", "packs/60000/a/"):
        assert night_of_folder(other) is None
