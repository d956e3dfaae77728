"""`stampede settings`: a shell script that gives the same settings again."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from stampede.cli import running
from stampede.cli.main import app
from stampede.cli.settings import for_aws, script, settings, variable_of
from stampede.config.settings import GROUPS, Settings
from stampede.errors import SetupError

CHANGED = Settings(
    store="file:///a folder/it's $HOME `id`",
    kafka_options={"sasl.password": 'two words "quoted"', "security.protocol": "SASL_SSL"},
    topics="lsst-alerts,ztf-alerts",
    ca_file=Path("/etc/my ca.pem"),
    limit_clients=True,
    future_days=2.5,
    cutout_days=30,
    sink="http://sink.test/?a=1&b=2",
)


def in_a_shell(lines: str, tmp_path: Path) -> dict[str, str]:
    """The variables that a shell has after it ran a script."""
    (tmp_path / "settings.sh").write_text(lines)
    done = subprocess.run(
        ["sh", "-ec", ". ./settings.sh; env -0"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert not done.stderr
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


@pytest.mark.parametrize("settings", [Settings(), CHANGED], ids=["defaults", "changed"])
@pytest.mark.parametrize("defaults_too", [False, True])
def test_pasted_back_it_gives_the_same_settings(
    settings: Settings, defaults_too: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(script(settings, secrets=True))
    if defaults_too:  # whoever uncomments a default changes nothing
        lines = re.sub(r"^# export (?!\w+='')", "export ", lines, flags=re.MULTILINE)
    for name, value in in_a_shell(lines, tmp_path).items():
        if name.startswith(("STAMPEDE_", "K_SINK")):
            monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_only_what_differs_from_the_default_is_set() -> None:
    exported = [line for line in script(CHANGED, secrets=True) if line.startswith("export ")]
    assert len(exported) == len(CHANGED.model_fields_set)


def test_keys_are_not_shown() -> None:
    lines = "\n".join(script(Settings(secret_key=SecretStr("open sesame"))))
    assert "open sesame" not in lines
    assert "# export STAMPEDE_SECRET_KEY=...  (set, and not shown)" in lines


def test_with_keys_it_is_a_whole_script(tmp_path: Path) -> None:
    values = Settings(secret_key=SecretStr("it's $HOME"), event_key=SecretStr("k"))
    found = in_a_shell("\n".join(script(values, secrets=True)), tmp_path)
    assert found["STAMPEDE_SECRET_KEY"] == "it's $HOME"
    assert found["STAMPEDE_EVENT_KEY"] == "k"


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a `stampede up` leaves while it runs, with its data elsewhere."""
    home, data = tmp_path / "home", tmp_path / "elsewhere"
    monkeypatch.setattr(running, "DATA", home)
    monkeypatch.setattr(running, "OTHERS", home / "others")
    for name in ("STAMPEDE_STORE", "STAMPEDE_DATA"):
        monkeypatch.delenv(name, raising=False)
    (home / "others").mkdir(parents=True)
    (home / "others" / "1").write_text(str(data))
    data.mkdir()
    (data / "up.json").write_text(
        json.dumps(
            {
                "pid": os.getpid(),
                "urls": {"read": "http://read.test"},
                "store": "http://127.0.0.1:8401/sky",
                "access_key": "ACCESS",
                "secret_key": "open sesame",
            }
        )
    )
    return data


def test_the_first_line_says_whose_settings_they_are(up: Path) -> None:
    (printed, *_) = shown().splitlines()
    assert printed == f"# the settings of the `stampede up` with its data in {up}"
    (printed, *_) = shown("--data", up.parent / "none").splitlines()
    assert printed == "# the settings of the environment: no `stampede up` runs here"


def test_a_shell_that_took_them_over_reaches_the_same_system(
    up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "open sesame" not in shown()
    found = in_a_shell(shown("--secrets"), tmp_path)
    (up / "up.json").unlink()
    for name, value in found.items():
        if name.startswith("STAMPEDE_"):
            monkeypatch.setenv(name, value)
    system = running.running()
    assert system
    assert system.urls == {"read": "http://read.test"}
    assert system.settings.store == "http://127.0.0.1:8401/sky"
    assert system.settings.secret_key.get_secret_value() == "open sesame"


def test_programs_of_others_get_endpoint_and_keys(up: Path, tmp_path: Path) -> None:
    found = in_a_shell(shown("--aws"), tmp_path)
    assert {name: value for name, value in found.items() if name.startswith("AWS_")} == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:8401",
        "AWS_ACCESS_KEY_ID": "ACCESS",
        "AWS_SECRET_ACCESS_KEY": "open sesame",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    assert "# the bucket: sky" in shown("--aws")


def test_a_directory_has_no_keys(monkeypatch: pytest.MonkeyPatch, up: Path) -> None:
    (up / "up.json").unlink()
    monkeypatch.setenv("STAMPEDE_STORE", "file:///sky")
    with pytest.raises(SetupError, match="file:///sky is no S3 endpoint: there are no keys to it"):
        [*for_aws(Settings())]


@pytest.mark.parametrize("option", ["--secrets", "--aws"])
def test_keys_are_not_written_to_a_terminal(
    up: Path, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(SetupError, match=rf'eval "\$\(stampede settings {option}\)"'):
        settings(secrets=option == "--secrets", aws=option == "--aws")
    assert capsys.readouterr().out == ""


def shown(*options: object) -> str:
    result = CliRunner().invoke(app, ["settings", *map(str, options)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_setting_is_in_the_group_that_the_source_says() -> None:
    assert all(title[0].isalpha() or title[0] == "`" for title in GROUPS.values())
    assert len(GROUPS) == len(Settings.__bases__)
    assert all(len(group.model_fields) <= 20 for group in Settings.__bases__)
    fields = [name for group in reversed(Settings.__bases__) for name in group.model_fields]
    assert fields == list(Settings.model_fields)
    lines = list(script(Settings()))
    headings = [line.removeprefix("\n# -- ") for line in lines if line.startswith("\n# -- ")]
    assert headings == list(GROUPS.values())
    named = [line for line in lines if re.match(r"(# )?export ", line)]
    assert len(named) == len(Settings.model_fields)
    assert all(f"export {variable_of(name)}=" in "\n".join(named) for name in Settings.model_fields)
