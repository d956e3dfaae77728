"""The page of a ZTF object switches between difference and total flux."""

import pyarrow as pa
import pytest

from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.read.html_page import html
from tests.support.read.read_service import serving

OBJECT = "ZTF18aaaaaaa"
PAGE = f"/objects/{OBJECT}"
NEAREST = {"distnr": 0.25, "magnr": 17.5, "sigmagnr": 0.0625}


def alert() -> bytes:
    """A detection of 18 mag, one without a reference source, one of more than it, and a limit."""
    own = made_alerts.ztf_record()["candidate"] | NEAREST
    earlier = [
        own | {"candid": 1, "jd": own["jd"] - 1, "pid": 1, "distnr": 9.0},
        own | {"candid": 2, "jd": own["jd"] - 2, "pid": 2, "isdiffpos": "f", "magpsf": 17.0},
        own | {"candid": None, "jd": own["jd"] - 3, "pid": 3},
    ]
    return made_alerts.ztf_alert(candidate=own, prv_candidates=earlier)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    decoder = make_batch_decoder(tmp_path_factory.mktemp("spool"))
    objects = MemoryObjects()
    rows: pa.Table = decoder.detections([alert()]).rows
    assert rows.schema.equals(DETECTION)
    Table(objects, DETECTIONS, threads=1).append(rows, Coverage.of({("alerts", 0): [0]}))
    yield from serving(make_app(Settings(), objects))


def test_the_page_leads_to_the_total_flux_and_back(read):
    page, text = html(read(PAGE))
    assert "Difference flux (µJy)" in text
    [there] = [a["href"] for a in page.all("a") if a["href"].endswith("flux=total")]
    page, text = html(read(there))
    assert "Total flux (µJy) of 2 points over time" in text
    assert PAGE in [a["href"] for a in page.all("a")]


def test_total_fluxes_are_drawn_and_the_rest_is_counted(read):
    _, text = html(read(f"{PAGE}?flux=total"))
    assert "r 592" in text or "g 592" in text  # 363.1 and 229.1 µJy
    assert "1 limit of the difference flux alone. 1 point without a total flux. " in text
    assert "a source of the reference image at the object" in text


def test_total_magnitudes_are_those_of_the_object(read):
    _, text = html(read(f"{PAGE}?flux=total&axis=mag"))
    assert "Total magnitude (AB) of 1 point" in text
    assert "16.969" in text  # -2.5 log10(10 ** -7 + 10 ** -7.2)
    assert "1 point of negative total flux, which has no magnitude." in text
    assert "1 point without a total magnitude." in text


def test_the_difference_flux_counts_nothing_of_this(read):
    _, text = html(read(PAGE))
    assert "reference image" not in text
    assert "alone" not in text


def test_all_formats_have_both(read):
    rows = read(f"/v1/objects/{OBJECT}/lightcurve").json()["detections"]
    totals = {row["source_id"]: row["total_flux"] for row in rows}
    assert totals.pop(str(made_alerts.ztf_record()["candid"])) == pytest.approx(592_165, rel=1e-5)
    assert totals == {"1": None, "2": pytest.approx(-212_362, rel=1e-5), "3": None}
    text = read(f"/v1/objects/{OBJECT}/lightcurve?format=votable").data.decode()
    assert "10^((31.4 - magnr) / 2.5)" in text
