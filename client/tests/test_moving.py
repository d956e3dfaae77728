"""Bodies of the solar system: what alerts show of one, and its cutouts, on a real server."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from astropy.time import Time
from astropy.units import Unit

import stampede_client
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.offsets.coverage import Coverage
from stampede_client import BadInput, Client, NotFound
from stampede_client.sky import table_of
from tests.read.moving.test_observations import stored
from tests.support.alerts.fits_files import lsst, source
from tests.support.read.read_service import BODY, ZTF_ALERT, cutout, fill, serving

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "moving-objects.md"
ALERTS = (1004, 1003, 1002, 1001)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    objects = stored()
    images = [
        cutout(alert_id, "lsst", "science", "77", 60000.0, lsst(source(30, seed=alert_id)))
        for alert_id in ALERTS
    ]
    fill(objects, images, [], Coverage.of({("t", 0): [3]}))
    for read in serving(make_app(Settings(), objects)):
        yield read.url


@pytest.fixture
def st(address: str) -> Iterator[Client]:
    with stampede_client.connect(address) as client:
        yield client


@pytest.mark.parametrize("name", [BODY, " 2011UW158", "K11UF8W", "2011_UW158"])
def test_a_table_by_time_with_units_and_masks(st: Client, name: str) -> None:
    found = st.moving(name)
    assert found.meta["designation"] == BODY
    assert isinstance(found["mjd"], Time)
    assert found["mjd"].scale == "tai"
    assert found["mjd"].mjd.tolist() == [59996.0, 59997.0, 59998.0, 59999.0]
    assert found["alert_id"].tolist() == [*ALERTS]
    assert found["alert_id"].dtype == np.int64
    assert found["helio_distance"].unit == Unit("AU")
    assert found["phase_angle"].unit == Unit("deg")
    assert found["flux"].unit == Unit("nJy")
    assert found["phase_angle"].tolist() == [12.5] * 4
    assert found["predicted_mag"].mask.all()


def test_numbers_and_comets(st: Client) -> None:
    assert st.moving("C/2017 K2 (PANSTARRS)")["object_id"].tolist() == ["ZTF18aaaaaaa"]
    for number in (45685, "45685"):
        with pytest.raises(NotFound, match="no alert of the body '45685' is stored"):
            st.moving(number)  # of a programme that is withheld
    with pytest.raises(NotFound, match=r"body 'a/b[?]c#d%2F' is stored"):
        st.moving("a/b?c#d%2F")


def test_observations_may_be_chosen(st: Client) -> None:
    assert st.moving(BODY, band="g")["alert_id"].tolist() == [1004, 1002]
    some = st.moving(BODY, start=59997, end=Time(59998.0, format="mjd", scale="tai"))
    assert some["alert_id"].tolist() == [1003, 1002]
    none = st.moving("2011UW158", survey="ztf")
    assert (len(none), none.meta["designation"]) == (0, "2011UW158")
    assert none.colnames == some.colnames


def test_the_reduced_magnitude_is_a_line_of_python(st: Client) -> None:
    found = st.moving(BODY, magnitudes=True)
    reduced = found["mag"] - 5 * np.log10(found["helio_distance"] * found["topo_distance"])
    expected = 31.4 - 2.5 * np.log10([400.0, 300.0, 200.0, 1.0]) - 5 * np.log10(2.7 * 1.9)
    assert np.allclose(reduced, expected, atol=1e-4)


def test_cutouts_along_its_path(st: Client, tmp_path: Path) -> None:
    result = st.fetch_cutouts(st.moving(BODY)["alert_id"], tmp_path)
    assert (result.fetched, result.missing, result.lost) == (4, [], [])
    assert {path.parent.name for path in tmp_path.glob("*/science.fits.gz")} == {*map(str, ALERTS)}


@pytest.mark.parametrize("name", ["", " ", "x" * 65, "a\nb", 45685.0, True, None])
def test_what_is_no_designation_is_named(st: Client, name: object) -> None:
    with pytest.raises(BadInput, match="is no designation; give a number as 45685"):
        st.moving(name)  # type: ignore[arg-type]


def test_the_how_to_runs(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    code = "\n".join(blocks).replace("http://127.0.0.1:8080", url)
    exec(compile(code, HOW_TO.name, "exec"), {})
    printed = capsys.readouterr().out
    assert "17.96" in printed  # of 2.7 au and 1.9 au
    assert printed.splitlines()[-1] == "1 ['11', '12']"
    assert (tmp_path / "path-of-2011-UW158" / str(ZTF_ALERT) / "science.fits.gz").exists()


@pytest.mark.anyio
async def test_it_can_be_awaited(address: str) -> None:
    async with stampede_client.connect_async(address) as client:
        assert len(await client.moving(BODY, band="r")) == 2


def test_texts_that_are_null_are_masked() -> None:
    found = table_of(pa.table({"band": pa.array(["g", None])}))
    assert found["band"].mask.tolist() == [False, True]
