"""Many cutouts and light curves on a real server, stopped and continued."""

import gzip
from pathlib import Path

import httpx
import pytest

import stampede_client
from stampede_client import Client, downloads
from stampede_client.responses import tar_of
from tests.support.read.read_service import LSST_ALERT, LSST_OBJECT, ZTF_ALERT, ZTF_OBJECT

IDS = [ZTF_ALERT, LSST_ALERT, 12345, ZTF_ALERT]


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.gz")}


def test_cutouts_of_many_alerts(st: Client, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    result = st.fetch_cutouts(IDS, tmp_path, lambda *at: seen.append(at))
    assert result == stampede_client.Fetched(2, 0, ["12345"])
    assert seen == [(3, 3)]
    kinds = ("science", "template", "difference")
    sent = {f"{ZTF_ALERT}/{kind}.fits.gz" for kind in kinds}
    assert names(tmp_path) == sent | {
        f"{LSST_ALERT}/{kind}.fits.gz" for kind in ("science", "difference")
    }
    file = gzip.decompress((tmp_path / f"{LSST_ALERT}/science.fits.gz").read_bytes())
    assert file == st.cutouts(LSST_ALERT).bytes("science")


def test_a_second_call_continues(
    st: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "BATCH", 1)

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        st.fetch_cutouts(IDS, tmp_path, stop)
    before = names(tmp_path)
    assert before
    left = tmp_path / f"{LSST_ALERT}.partial"  # as if the program was killed here
    left.mkdir()
    (left / "science.fits.gz").write_bytes(b"half")
    result = st.fetch_cutouts(IDS, tmp_path)
    assert result == stampede_client.Fetched(1, 1, ["12345"])
    assert before < names(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize("length", [100, 2000, 20_000])
def test_a_tar_that_ends_early_is_an_error(url: str, length: int) -> None:
    tar = httpx.post(f"{url}/v1/cutouts?format=tar", json={"ids": [str(ZTF_ALERT)]}).content
    assert len(tar) > length
    assert len(tar_of(tar, [str(ZTF_ALERT)]).value.alerts) == 1
    with pytest.raises(stampede_client.UnexpectedResponse):
        tar_of(tar[:length], [str(ZTF_ALERT)])


# `pytest.warns` emits again what the collector says meanwhile of files of earlier tests.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_light_curves_of_many_objects(st: Client) -> None:
    with pytest.warns(stampede_client.MissingWarning, match="1 of 3 ids .*: ZTF18nothere"):
        curves = list(st.lightcurves([ZTF_OBJECT, int(LSST_OBJECT), "ZTF18nothere"]))
    assert [curve["object_id"][0] for curve in curves] == [LSST_OBJECT, ZTF_OBJECT]
    assert [len(curve) for curve in curves] == [2, 4]


@pytest.mark.anyio
async def test_both_can_be_awaited(url: str, tmp_path: Path) -> None:
    async with stampede_client.connect_async(url) as st:
        assert (await st.fetch_cutouts([ZTF_ALERT], tmp_path)).fetched == 1
        assert [len(curve) async for curve in st.lightcurves([ZTF_OBJECT])] == [4]
