"""The commands on an object's page run as they are copied, and its links name the object."""

import html as text_of
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from stampede.alerts.columns import DETECTION
from stampede.read.pages.external_links import links
from tests.support.read.html_page import html
from tests.support.read.read_service import LSST_ALERT, LSST_OBJECT, ZTF_OBJECT, point

CLIENT = Path(__file__).parents[4] / "client"


@pytest.fixture(params=[ZTF_OBJECT, LSST_OBJECT])
def examples(read, request) -> list[str]:
    _, text = html(read(f"/objects/{request.param}"))
    found = re.findall('<pre class="example copied"><code>(.*?)</code></pre>', text, re.DOTALL)
    return [text_of.unescape(one) for one in found]


def test_the_commands_of_a_page_run(examples, tmp_path, monkeypatch):
    curl, python = examples
    subprocess.run(["bash", "-ec", curl], cwd=tmp_path, check=True, capture_output=True)
    light_curve, tar = sorted(tmp_path.iterdir())
    assert light_curve.read_text().startswith("object_id,")
    assert b"science.fits" in tar.read_bytes()
    pytest.importorskip("httpx")
    monkeypatch.syspath_prepend(CLIENT)
    known: dict = {}
    exec(python, known)
    assert len(known["curve"]) >= 1
    assert known["image"].data.shape in ((63, 63), (30, 30))


def test_links_name_the_object_and_its_position():
    for survey, name, brokers in (
        ("ztf", "ZTF21abiuvdk", {"ALeRCE", "Fink", "Lasair"}),
        ("lsst", str(LSST_ALERT), {"ALeRCE", "Fink", "Lasair"}),
        ("other", "1", set()),
    ):
        rows = pa.Table.from_pylist([point(name, survey, 1, 59000.0)], DETECTION)
        found = links(name, survey, rows)
        assert found.keys() == brokers | {"SIMBAD", "NED", "TNS", "Legacy Survey"}
        assert all(name in found[broker] for broker in brokers)
        assert "ra=10.000000&dec=-5.000000" in found["Legacy Survey"]
        assert "Coord=10.000000d%20-5.000000d" in found["SIMBAD"]
