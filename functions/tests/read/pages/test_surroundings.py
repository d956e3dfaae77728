"""What surveys say of an object's surroundings, on its page."""

import re

import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.read.pages.surroundings import facts
from stampede_local.demo import oracle
from tests.support.alerts import made_alerts
from tests.support.read.html_page import html
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

CANDIDATE = {
    **{"distpsnr1": 20.5547, "sgscore1": 0.0313, "srmag1": -999.0},
    **{"distnr": 13.3112, "magnr": 22.886, "sigmagnr": 0.263},
    **{"neargaia": -999.0, "maggaia": -999.0},
    **{"ssnamenr": "64943", "ssdistnr": 1.0, "ssmagnr": 19.3},
}


def said(survey: str, fields: dict) -> dict[str, str]:
    return {fact.name: fact.text for fact in facts(survey, fields)}


def test_ztf_names_what_is_near_and_leaves_out_what_it_does_not_know():
    assert said("ztf", {"candidate": CANDIDATE}) == {
        "nearest Pan-STARRS source": "20.6″ away, star score 0.03",
        "nearest in the reference image": "13.5″ away, 22.89 ± 0.26 mag",
        "nearest solar-system object": "64943, 1″ away, 19.30 mag",
    }
    none = CANDIDATE | {"ssnamenr": "null", "ssdistnr": -999.0, "distpsnr1": None}
    assert list(said("ztf", {"candidate": none})) == ["nearest in the reference image"]


def test_rubin_names_the_solar_system_object():
    source = {"designation": "2011 UH413", "phaseAngle": 12.3456, "helioRange": 2.5}
    fields = {"ssSource": source, "mpc_orbits": None}
    assert said("lsst", fields) == {
        "solar-system object": "2011 UH413",
        "phase angle": "12.3°",
        "distance from the Sun": "2.5 au",
    }


@pytest.mark.parametrize(
    ("survey", "fields"),
    [("lsst", {"ssSource": None}), ("lsst", {}), ("ztf", {"candidate": None}), ("ztf", {})],
)
def test_an_alert_that_says_nothing_has_no_surroundings(survey, fields):
    assert said(survey, fields) == {}


def test_an_alert_of_an_old_schema_has_a_page(tmp_path):
    """One without the fields that later versions have."""
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path)
    message = made_alerts.confluent(made_alerts.rubin_record(400, 4), 400)
    store(settings, [message])
    for read in serving(make_app(settings)):
        page, text = html(read(f"/objects/{oracle.head(message)['object_id']}"))
    assert "Surroundings" not in text
    assert "may lack" not in text
    assert len(page.all("h1")) == 1


@pytest.mark.long
@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts")
def test_pages_of_real_objects_say_what_their_alerts_say(real):
    _, text = html(real("/objects/ZTF18acsbtph"))
    shown = '<a href="/moving/64943">64943, 1″ away, 19.30 mag</a>'
    assert f"<dt>nearest solar-system object</dt><dd>{shown}</dd>" in text
    assert '<div title="distpsnr1, sgscore1, srmag1">' in text
    near = re.search(r'href="(/cone\?[^"]+)">objects near this one', text)[1]
    _, cone = html(real(near.replace("&amp;", "&")))
    assert "/objects/ZTF18acsbtph" in cone
    _, text = html(real("/objects/313853517439697046"))
    assert "Surroundings" not in text  # its alert has no object of the solar system
