"""`stampede new survey`: from samples to a module that decodes them, its test, a report."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stampede.alerts import surveys
from stampede.cli.main import app
from stampede.samples import report, sample, survey_files
from stampede.samples.guesses import guess
from tests.support.alerts import made_alerts, winter_alerts

REAL = made_alerts.REAL
FUNCTIONS = Path(__file__).parents[2]
SAMPLES = {
    "pgir": REAL / "foreign" / "pgir-1.avro",
    "desirt": REAL / "other-surveys" / "decam",
    "atlas": REAL / "other-surveys" / "atlas",
    "winter": REAL / "other-surveys" / "winter",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / survey_files.MODULES).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def only_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are not known, as on the day before they were added."""
    for name in surveys.names()[2:]:
        monkeypatch.delitem(surveys.MODULES, name)


def new(name: str, *samples: Path, into: Path, status: int = 0) -> str:
    """The report of `stampede new survey`, or its error."""
    arguments = ["new", "survey", name, *map(str, samples), "--into", str(into)]
    done = CliRunner().invoke(app, arguments)
    if status == 2:
        return str(done.exception)
    assert done.exit_code == status, (done.output, done.exception)
    return (into / f"{name}-report.md").read_text()


def nova(number: int = 1, **changes) -> dict:
    row = {"obs_mjd": 61000.25 + number, "band": "Q7", "ra": 10.0, "decl": -5.0}
    row |= {"flux": 2.0, "flux_err": 0.5, "id": 100 * number}
    return {
        **{"alertId": number, "name": "nova-1", "measure": row},
        **{
            "past": [row | {"id": 7, "obs_mjd": 61000.0, "band": "V"}],
            "new_image": made_alerts.FITS,
        },
        **changes,
    }


def nova_file(
    path: Path,
    numbers: tuple[int, ...] = (1, 2),
    unit: str = "[uJy]",
    in_records: bool = False,
    **changes,
) -> Path:
    """Alerts of an invented survey, which has neither ZTF's names nor its units."""
    kinds = {"obs_mjd": "double", "band": "string", "ra": "double", "decl": "double"}
    kinds |= {"flux": ["null", "float"], "flux_err": "float", "id": "long"}
    row = made_alerts.row_type("row", kinds)
    docs = {"flux": f"flux of the source {unit}", "obs_mjd": "MJD, TAI"}
    row["fields"] = [f | {"doc": docs.get(f["name"], "")} for f in row["fields"]]
    fields = {"alertId": "long", "name": "string", "measure": row}
    fields |= {"past": {"type": "array", "items": "row"}, "new_image": "bytes"}
    schema = made_alerts.row_type("nova.alert", fields)
    image = made_alerts.FITS.replace(b"x" * 2800, b"")
    cards = ("BITPIX  = 8", "NAXIS   = 2", "NAXIS1  = 4", "NAXIS2  = 4", "END")
    image = "".join(f"{card:80}" for card in ("SIMPLE  =                    T", *cards)).encode()
    image = image.ljust(2880) + bytes(2880)
    sent: bytes | dict = image
    if in_records:  # as ZTF sends its images
        stamp = made_alerts.row_type("stamp", {"fileName": "string", "stampData": "bytes"})
        schema = made_alerts.row_type("nova.alert", fields | {"new_image": stamp})
        sent = {"fileName": "a.fits", "stampData": image}
    records = [nova(n, **{"new_image": sent, **changes}) for n in numbers]
    path.write_bytes(made_alerts.contained(records, schema))
    return path


def test_a_survey_of_other_names_and_units(checkout: Path) -> None:
    told = new("nova", nova_file(checkout / "a.avro"), into=checkout)
    assert "The module decodes 2 of 2: 4 points of light curves and 2 cutouts." in told
    for row in (
        "| alert id | `alertId` |",
        "| object id | `name` |",
        "| measurement | the record `measure` |",
        "| time | `obs_mjd`, MJD TAI |",
        "| position | `ra`, `decl`, ICRS degrees |",
        "| band | `band`: Q7, V |",
        "| brightness | `flux` ± `flux_err`, 1000 nJy |",
        "| science cutout | `new_image` |",
        "| images | FITS |",
        "| history `past` | earlier detections |",
    ):
        assert row in told, told
    text = (checkout / survey_files.MODULES / "nova.py").read_text()
    messages = [path.read_bytes() for path in sorted(checkout.glob("functions/tests/**/*.avro"))]
    with survey_files.registered("nova", text):
        own = sample.judge(messages).first_point
    assert (own["flux"], own["mjd"], own["band"]) == (2000.0, 61001.25, "Q7")
    assert (own["source_id"], own["object_id"], own["dec"]) == (1, "nova-1", -5.0)
    test = (checkout / survey_files.TESTS / "test_nova.py").read_text()
    assert '"mjd": 61001.25,' in test


def test_images_in_records_are_stored_too(checkout: Path) -> None:
    told = new("nova", nova_file(checkout / "a.avro", in_records=True), into=checkout)
    assert "| science cutout | `new_image.stampData` |" in told
    assert "The module decodes 2 of 2: 4 points of light curves and 2 cutouts." in told


def test_a_flux_without_a_unit_is_a_doubt(checkout: Path) -> None:
    told = new("nova", nova_file(checkout / "a.avro", unit=""), into=checkout)
    assert "- [ ] the unit of `flux`: nothing says it, and nJy is assumed" in told


def test_what_a_stranger_writes_into_an_alert_is_no_code(checkout: Path) -> None:
    band = 'g", "x": exit(5), "\\'
    file = nova_file(checkout / "a.avro", (1,), measure=nova()["measure"] | {"band": band})
    new("nova", file, into=checkout)
    tree = ast.parse((checkout / survey_files.TESTS / "test_nova.py").read_text())
    (expected,) = (each for each in ast.walk(tree) if isinstance(each, ast.Dict))
    assert ast.literal_eval(expected)["band"] == band
    assert "exit" not in (checkout / survey_files.MODULES / "nova.py").read_text()


@pytest.mark.parametrize("again", ["nova-report.md", "functions/tests/alerts/surveys/test_nova.py"])
def test_nothing_is_overwritten(checkout: Path, again: str) -> None:
    (checkout / again).parent.mkdir(parents=True, exist_ok=True)
    (checkout / again).write_text("mine")
    said = new("nova", nova_file(checkout / "a.avro"), into=checkout, status=2)
    assert said == f"{checkout / again} is there already: nothing was written"
    assert (checkout / again).read_text() == "mine"
    assert not (checkout / survey_files.MODULES / "nova.py").exists()


def test_names_and_samples_that_cannot_be(checkout: Path) -> None:
    nova_alerts = nova_file(checkout / "a.avro")
    ztf = checkout / "ztf.avro"
    ztf.write_bytes(made_alerts.ztf_alert())
    bad = checkout / "bad.avro"
    bad.write_bytes(b"# Notes")
    for name, file, said in (
        ("ztf", nova_alerts, "there is a survey ztf already"),
        ("../x", nova_alerts, "'../x' is no name of a survey"),
        ("other", nova_alerts, "a survey is recognised by that name: take 'nova' for 'other'"),
        ("nova", ztf, "is an alert of ztf, which is known already"),
        ("nova", bad, "bad.avro: neither an Avro container"),
        (
            "nova",
            nova_file(checkout / "t.avro", measure=nova()["measure"] | {"obs_mjd": 1.0}),
            "`obs_mjd` is no time",
        ),
        (
            "nova",
            nova_file(checkout / "i.avro", alertId=5, measure=nova()["measure"]),
            "no integer that tells one",
        ),
    ):
        assert said in new(name, file, into=checkout, status=2), (name, said)
    assert "is no checkout of Stampede" in new("nova", nova_alerts, into=checkout / "x", status=2)
    assert not list(checkout.glob("functions/tests"))


def test_what_the_module_cannot_decode_is_told(checkout: Path) -> None:
    file = nova_file(checkout / "a.avro", name="an object")
    told = new("nova", file, into=checkout, status=1)
    assert "why this is refused: alert 1 of object an object" in told


def test_winter_is_guessed_from_a_made_alert(only_two, checkout: Path) -> None:
    """All but its bands, which its schema numbers wrongly."""
    (checkout / "a.avro").write_bytes(winter_alerts.alert())
    told = new("winter", checkout / "a.avro", into=checkout)
    assert "The module decodes 1 of 1: 5 points" in told
    assert "| brightness | `magpsf` ± `sigmapsf`, AB magnitude, negative by `isdiffpos` |" in told
    assert "the schema has `candidate.sgmag1` twice" in told


@pytest.mark.skipif(not REAL.is_dir(), reason="the real alerts (../shared/data) are not here")
@pytest.mark.real
@pytest.mark.parametrize("name", SAMPLES)
def test_the_module_of_real_samples_decodes_them_as_its_test_says(
    only_two, checkout: Path, name: str
) -> None:
    told = new(name, SAMPLES[name], into=checkout)
    found = re.search(r"decodes (\d+) of (\d+): \d+ points of light curves and \d+ cutouts", told)
    assert found
    assert found[1] == found[2]
    text = (checkout / survey_files.MODULES / f"{name}.py").read_text()
    assert ast.parse(text)
    run_its_test(checkout, name)


def run_its_test(checkout: Path, name: str) -> None:
    """As the page has it: in a copy of the code, with the survey's line in `MODULES`."""
    for package in ("stampede", "tests"):
        shutil.copytree(
            FUNCTIONS / package,
            checkout / "functions" / package,
            dirs_exist_ok=True,
            ignore=lambda folder, names: (
                {"fixtures", "__pycache__", f"{name}.py", f"test_{name}.py"} & {*names}
            ),
        )
    registry = checkout / survey_files.MODULES / "__init__.py"
    line = f'    "{name}": "stampede.alerts.surveys.{name}",\n'
    text = registry.read_text().replace(line, "")
    registry.write_text(text.replace("MODULES = {\n", "MODULES = {\n" + line))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py"],
        cwd=checkout / survey_files.TESTS,
        env=os.environ | {"PYTHONPATH": str(checkout / "functions")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.skipif(not REAL.is_dir(), reason="the real alerts (../shared/data) are not here")
@pytest.mark.real
def test_what_is_guessed_of_real_surveys(only_two) -> None:
    found = {}
    for name, path in SAMPLES.items():
        found[name] = guess([*report.read([path], 5)])
    assert {name: each.brightness[:4] for name, each in found.items()} == {
        "pgir": (True, "magpsf", "sigmapsf", 1.0),
        "desirt": (False, "psfFlux", "psfFluxErr", 1.0),  # its magnitudes prove nJy
        "atlas": (False, "flux", "Dflux", 1000.0),  # its documentation says uJy
        "winter": (True, "magpsf", "sigmapsf", 1.0),
    }
    assert {name: each.scale for name, each in found.items()} == {
        **{"pgir": "JD UTC", "desirt": "MJD UTC", "atlas": "MJD UTC", "winter": "JD UTC"}
    }
    assert [each.forced for each in found["desirt"].histories] == [True]
    assert found["winter"].band_of_id == {0: "Y", 1: "J", 2: "H", 3: "K"}
