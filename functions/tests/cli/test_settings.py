"""`stampede settings`: a shell script that gives the same settings again."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr

from stampede.cli.settings import script, variable_of
from stampede.config.settings import GROUPS, Settings

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
    lines = "\n".join(script(settings))
    if defaults_too:  # whoever uncomments a default changes nothing
        lines = re.sub(r"^# export (?!\w+='')", "export ", lines, flags=re.MULTILINE)
    for name, value in in_a_shell(lines, tmp_path).items():
        if name.startswith(("STAMPEDE_", "K_SINK")):
            monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_only_what_differs_from_the_default_is_set() -> None:
    exported = [line for line in script(CHANGED) if line.startswith("export ")]
    assert len(exported) == len(CHANGED.model_fields_set)


def test_keys_are_not_shown() -> None:
    lines = "\n".join(script(Settings(secret_key=SecretStr("open sesame"))))
    assert "open sesame" not in lines
    assert "# export STAMPEDE_SECRET_KEY=...  (set, and not shown)" in lines


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
