"""Where a part of the store cannot be read, the client says that a response may lack something."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from astropy import units

import stampede_client
from stampede.config.settings import Settings
from stampede.lookup import cone_search
from stampede.read.app import make_app
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, POSITIONS
from tests.support.read.read_service import LSST_ALERT, ZTF_ALERT, ZTF_OBJECT, sample_store, serving
from tests.support.store.damaged_store import ALERTS, damage, damage_image, store_of_three


@pytest.fixture(scope="module")
def damaged() -> Iterator[str]:
    """The URL of a store with an object that nobody can read among the runs of two tables."""
    objects = sample_store()
    for table in ("detections", "cutouts"):
        objects.put(f"tables/{table}/0000-{'a' * 32}.parquet", b"what is this?")
    for reader in serving(make_app(Settings(), objects)):
        yield reader.url


def test_it_warns_and_names_the_reason(damaged: str) -> None:
    with stampede_client.connect(damaged) as st:
        with pytest.warns(stampede_client.IncompleteWarning, match="1 damaged object") as caught:
            assert len(st.lightcurve(ZTF_OBJECT)) == 4
        assert caught[0].filename == __file__
        with pytest.raises(stampede_client.NotFound, match="may be stored all the same: 1 damaged"):
            st.alert(12345)


def test_strict_raises(damaged: str) -> None:
    with stampede_client.connect(damaged, strict=True) as st:
        for query in (lambda: st.lightcurve(ZTF_OBJECT), lambda: st.alert(ZTF_ALERT)):
            with pytest.raises(stampede_client.Incomplete, match="1 damaged object"):
                query()


def test_a_whole_answer_does_not_warn(url: str) -> None:
    with warnings.catch_warnings(), stampede_client.connect(url, strict=True) as st:
        warnings.simplefilter("error")
        found = st.recent(2)
        assert found["alert_id"][0] == str(LSST_ALERT)
        assert len(st.alert(found["alert_id"][0])["cutouts"]) == 3


def test_recent_alerts_are_the_latest_ones(url: str) -> None:
    with stampede_client.connect(url) as st:
        found = st.recent()
        assert found.colnames == ["alert_id", "survey", "object_id", "mjd", "band"]
        assert list(found["mjd"]) == sorted(found["mjd"], reverse=True)
        assert len(found) == 5
        for bad in (0, 101):
            with pytest.raises(stampede_client.BadInput, match="from 1 to 100"):
                st.recent(bad)


@pytest.fixture
def unread() -> Iterator[str]:
    """The URL of a store whose damage nothing has met yet: A's rows in three tables."""
    objects = store_of_three()
    for spec in (DETECTIONS, CUTOUTS, POSITIONS):
        damage(objects, spec, 0)
    for reader in serving(make_app(Settings(), objects)):
        yield reader.url


def test_many_light_curves_that_lack_rows_are_never_silent(unread: str) -> None:
    with stampede_client.connect(unread, strict=True) as st:
        for _ in range(2):
            with pytest.raises(stampede_client.Incomplete, match=r"damaged object .*unreadable: A"):
                [*st.lightcurves("ABC")]
        assert [len(curve) for curve in st.lightcurves("BC")] == [1, 1]
    with stampede_client.connect(unread) as st:
        with pytest.warns(stampede_client.IncompleteWarning, match="unreadable: A") as caught:
            assert [len(curve) for curve in st.lightcurves("ABC")] == [1, 1, 1]
        assert caught[0].filename == __file__


def test_many_cutouts_that_are_unreadable_are_never_missing(unread: str, tmp_path: Path) -> None:
    ids = [*ALERTS.values(), 404]
    with stampede_client.connect(unread, strict=True) as st:
        with pytest.raises(stampede_client.Incomplete, match="1 damaged object of the table cuto"):
            st.fetch_cutouts(ids, tmp_path)
        assert not [*tmp_path.iterdir()]
        assert st.fetch_cutouts(ids[1:], tmp_path).missing == ["404"]
    with stampede_client.connect(unread) as st:
        with pytest.warns(stampede_client.IncompleteWarning, match="1 damaged object"):
            result = st.fetch_cutouts(ids, tmp_path)
        assert result == stampede_client.Fetched(0, 2, ["404"], [], ["11"])


def test_an_alert_with_a_damaged_image_is_asked_for_again(tmp_path: Path) -> None:
    objects = store_of_three()
    pack, before = damage_image(objects, 11, "template")
    progress: list[tuple[int, int]] = []
    for reader in serving(make_app(Settings(), objects)):
        with stampede_client.connect(reader.url) as st:
            for there in range(2):
                result = st.fetch_cutouts([11, 12], tmp_path, lambda *at: progress.append(at))
                assert result == stampede_client.Fetched(1 - there, there, [], ["11/template"])
                assert {path.name for path in tmp_path.iterdir()} == {"12"}
            objects.put(pack, before)
            assert st.fetch_cutouts([11, 12], tmp_path) == stampede_client.Fetched(1, 1)
    assert progress == [(2, 2), (2, 2)]


@pytest.mark.parametrize("most", [1, 200_000], ids=["in rings", "whole"])
def test_a_cone_that_lacks_objects_is_never_silent(
    unread: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(cone_search, "MOST_ROWS", most)
    with (
        stampede_client.connect(unread, strict=True) as st,
        pytest.raises(stampede_client.Incomplete, match="1 damaged object of the table positions"),
    ):
        st.cone("20 -5", 30 * units.deg)


@pytest.mark.anyio
async def test_the_client_for_asyncio_says_the_same(unread: str) -> None:
    async with stampede_client.connect_async(unread, strict=True) as st:
        with pytest.raises(stampede_client.Incomplete, match="unreadable: A"):
            [curve async for curve in st.lightcurves("ABC")]
