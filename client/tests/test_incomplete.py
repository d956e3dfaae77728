"""Where a part of the store cannot be read, the client says that an answer may lack something."""

import warnings
from collections.abc import Iterator

import pytest

import stampede_client
from stampede.read.app import make_app
from stampede.settings import Settings
from tests.support.read_service import LSST_ALERT, ZTF_ALERT, ZTF_OBJECT, sample_store, serving


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
        with pytest.warns(stampede_client.IncompleteWarning, match="damaged objects") as caught:
            assert len(st.lightcurve(ZTF_OBJECT)) == 4
        assert caught[0].filename == __file__
        with pytest.raises(stampede_client.NotFound, match="may be stored all the same: 1 damaged"):
            st.alert(12345)


def test_strict_raises(damaged: str) -> None:
    with stampede_client.connect(damaged, strict=True) as st:
        for query in (lambda: st.lightcurve(ZTF_OBJECT), lambda: st.alert(ZTF_ALERT)):
            with pytest.raises(stampede_client.Incomplete, match="damaged objects"):
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
