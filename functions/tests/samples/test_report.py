"""`stampede inspect`: alerts of known and unknown surveys, containers, archives, hostile files."""

import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.samples import report
from tests.support.alerts import made_alerts, winter_alerts
from tests.support.alerts.hostile_alerts import HOSTILE

REAL = made_alerts.REAL


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """What `stampede inspect` prints on stdout and on stderr."""
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout, done.stderr


def lines_of(text: str) -> dict[str, str]:
    """The first lines by their first word."""
    return dict(line.split(maxsplit=1) for line in text.partition("\n\n")[0].splitlines()[1:])


def test_an_alert_of_a_known_survey(tmp_path: Path) -> None:
    file = tmp_path / "alert.avro"
    file.write_bytes(winter_alerts.alert())
    text, _ = run(file)
    shown = lines_of(text)
    assert text.startswith(f"{file}\n")
    assert shown["framing"] == "Avro object container, codec null"
    assert shown["schema"] == "winter.alert, version 0.1"
    assert shown["survey"] == "winter"
    assert shown["stored"] == "5 points of light curves, 3 cutouts"
    assert shown["history"] == "prv_candidates: 4 entries"
    assert shown["warning"] == "the schema has the field candidate.sgmag1 twice"
    assert "    sgmag1_2 " in text
    assert ["jd", "double", "2460381.03"] in [line.split() for line in text.splitlines()]


def test_a_known_alert_that_would_be_refused_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.avro").write_bytes(winter_alerts.alert(cutout_science=b"GIF89a"))
    text, _ = run(tmp_path)
    assert lines_of(text)["stored"].startswith("no: the science cutout of alert 3608694 is not")
    assert "GIF, 6 bytes" in text


def test_an_alert_of_no_survey_as_json(tmp_path: Path) -> None:
    inner = made_alerts.row_type("row", {"t": "double", "name": ["null", "string"]})
    schema = made_alerts.row_type("nova.alert", {"rows": {"type": "array", "items": inner}})
    schema["fields"].append({"name": "own", "type": ["null", "row"], "doc": "of\x1b[2Jthis"})
    schema["fields"].append({"name": "image", "type": "bytes", "doc": 5})
    record = {"rows": [{"t": 1.5, "name": "a\x1b]0;b"}], "own": None, "image": made_alerts.FITS}
    (tmp_path / "a.avro").write_bytes(made_alerts.contained([record], schema, "deflate"))
    found = json.loads(run(tmp_path, "--json")[0])
    assert found["survey"] is None
    assert found["refusal"].startswith("this is a NOVA alert (schema nova.alert)")
    assert found["histories"] == {"rows": 1}
    assert [(f["path"], f["type"], f["value"]) for f in found["fields"]] == [
        ("rows", "array of record", "1 entry"),
        ("rows[].t", "double", "1.5"),
        ("rows[].name", "null or string", "a\x1b]0;b"),
        ("own", "null or record", None),
        ("own.t", "double", None),
        ("own.name", "null or string", None),
        ("image", "bytes", "2,880 bytes, 0x53494d50…"),
    ]
    assert found["framing"] == "Avro object container, codec deflate"
    text, _ = run(tmp_path)
    assert "\x1b" not in text  # a terminal would obey it
    assert "of�[2Jthis" in text


def test_many_alerts_of_two_schemas_in_an_archive(tmp_path: Path) -> None:
    both = made_alerts.contained(
        [made_alerts.ztf_record(n) for n in (1, 2)], made_alerts.ztf_schema()
    )
    (tmp_path / "two.avro").write_bytes(both)
    (tmp_path / "one.avro").write_bytes(made_alerts.confluent(made_alerts.rubin_record(1101), 1101))
    with tarfile.open(tmp_path / "night.tar.gz", "w:gz") as archive:
        for name in ("two.avro", "one.avro"):
            archive.add(tmp_path / name, name)
    found = [json.loads(line) for line in run(tmp_path / "night.tar.gz", "--json")[0].splitlines()]
    assert [(each["survey"], each["alerts"]) for each in found] == [("ztf", 2), ("lsst", 1)]
    assert found[1]["framing"] == "Confluent, schema id 1101"
    assert json.loads(run(tmp_path / "two.avro", "--json", "--most", "1")[0])["alerts"] == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_named_with_its_fault(tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.avro"
    file.write_bytes(HOSTILE[name]())
    done = CliRunner().invoke(app, ["inspect", str(file)])
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert done.exit_code in (0, 1)
    if done.exit_code:
        assert done.stderr.startswith(str(file)), done.stderr
    else:  # what can be read is shown, and why it would not be stored
        assert lines_of(done.stdout)["stored"].startswith("no: "), done.stdout[:2000]
    assert len(done.output) < 1 << 20


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"# Notes", "neither an Avro container (Obj 0x01 …) nor Confluent framing"),
        (b"\0\0\0\x27\x0f123", "unknown schema id 9999"),
        (winter_alerts.alert()[:-40], "cut off"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_shown(tmp_path, content, reason) -> None:
    (tmp_path / "a.avro").write_bytes(content)
    (tmp_path / "b.avro").write_bytes(winter_alerts.alert())
    text, errors = run(tmp_path, status=1)
    assert errors.startswith(f"{tmp_path}/a.avro")
    assert reason in errors
    assert lines_of(text)["survey"] == "winter"


def test_no_file_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / "none.avro")])
    assert "there is no such file or folder" in str(done.exception)


@pytest.mark.skipif(not REAL.is_dir(), reason="the real alerts (../shared/data) are not here")
@pytest.mark.real
def test_real_alerts_of_every_survey() -> None:
    folders = [REAL / name for name in ("lsst", "ztf-forced", "foreign", "other-surveys")]
    found = list(report.inspect(folders, 3))
    groups = [each for each in found if isinstance(each, report.Group)]
    assert groups == found
    images = {each.first.schema_name: report.as_dict(each)["images"] for each in groups}
    assert {name: len(each) for name, each in images.items()} == {
        **{"alert": 3, "ztf.alert": 3, "winter.alert": 3, "pgir.alert": 3},
        **{"atlas.alert": 2, "desirt.alert": 3},
    }
    assert {each.first.survey for each in found if not each.refusal} == {
        "lsst",
        "ztf",
        "winter",
        "desirt",
    }
