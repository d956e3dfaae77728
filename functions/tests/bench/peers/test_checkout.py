import os
import subprocess
from pathlib import Path

import pytest

from stampede.errors import SetupError
from stampede_bench.peers.checkout import PEERS, open_checkout, parse
from tests.support.checkouts import with_python

NAME = "rubin-server"
CODE = {"alertdb/__init__.py": "", "alertdb/server.py": "", "alertdb/bin/__init__.py": ""}


def git(path: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(path), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def cloned(tmp_path: Path) -> Path:
    """A git repository with the names of Rubin's server, whose Python is this one."""
    path = tmp_path / "server"
    for name, text in CODE.items():
        write(path / name, text)
    write(path / "alertdb/bin/alertdb.py", "import json\n")
    git(path, "init", "--quiet")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "x")
    with_python(path)
    return path


def test_a_checkout_has_the_title_and_the_commit(cloned: Path) -> None:
    found = open_checkout(NAME, cloned)
    assert found.title == f"Rubin's server at {git(cloned, 'rev-parse', '--short=7', 'HEAD')}"
    assert found.python == str(cloned / ".venv/bin/python")
    with (cloned / "alertdb/server.py").open("a") as file:
        file.write("\n")
    assert open_checkout(NAME, cloned).commit == found.commit + "+"


def test_a_folder_of_something_else_is_refused(tmp_path: Path, cloned: Path) -> None:
    with pytest.raises(SetupError) as failed:
        open_checkout("fink", cloned)
    assert f"{cloned} is not a checkout of astrolabsoftware/fink-cutout-api" in str(failed.value)
    assert "it has no app_ztf.py" in str(failed.value)
    with pytest.raises(SetupError, match="is not a checkout of lsst-dm/alert_database_server"):
        open_checkout(NAME, tmp_path / "nothing")


@pytest.mark.parametrize("below", [False, True])
def test_code_without_a_commit_of_its_own_is_refused(tmp_path: Path, below: bool) -> None:
    """Nor does the commit of a repository count that has the folder in it."""
    if below:
        git(tmp_path, "init", "--quiet")
    for name, text in CODE.items():
        write(tmp_path / "code" / name, text)
    with pytest.raises(SetupError, match="is not a git checkout, so its figures would name no"):
        open_checkout(NAME, tmp_path / "code")


def test_a_checkout_without_a_python_is_told_how_to_make_one(cloned: Path) -> None:
    (cloned / ".venv/bin/python").unlink()
    with pytest.raises(SetupError) as failed:
        open_checkout(NAME, cloned)
    install = "python3 -m venv .venv && .venv/bin/python -m pip install boto3 ."
    assert f"has no Python of its own. Run:\n  cd {cloned} && {install}" in str(failed.value)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A git repository with the names of Stampede, without a virtual environment."""
    path = tmp_path / "earlier"
    for name in ("stampede/cli/main.py", "stampede_local/up.py", "stampede_bench/x.py"):
        for folder in (path / "functions" / name).parents[: name.count("/")]:
            write(folder / "__init__.py", "")
        write(path / "functions" / name, "")
    git(path, "init", "--quiet")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "x")
    return path


def test_an_earlier_stampede_is_imported_from_its_checkout(monkeypatch, earlier: Path) -> None:
    """Not the one that is installed, nor the one in the directory of whoever measures."""
    write(earlier.parent / "stampede.py", "raise SystemExit('of the current directory')\n")
    monkeypatch.chdir(earlier.parent)
    with_python(earlier)
    found = open_checkout("stampede", earlier)
    asked = [found.python, "-c", "import stampede; print(*stampede.__path__)"]
    environment = os.environ | found.environment
    said = subprocess.run(asked, env=environment, check=True, capture_output=True, text=True)
    assert said.stdout.strip() == str(earlier / "functions/stampede")


def test_an_earlier_stampede_is_made_by_its_own_makefile(tmp_path: Path, earlier: Path) -> None:
    with pytest.raises(SetupError) as failed:
        open_checkout("stampede", earlier)
    assert (
        f"{earlier} has no Python of its own. Run:\n  cd {earlier} && make .venv/stampede"
        in str(failed.value)
    )
    with pytest.raises(SetupError) as failed:
        open_checkout("stampede", tmp_path)
    assert f"Run:\n  git worktree add --detach {tmp_path} COMMIT" in str(failed.value)


def test_a_python_that_lacks_a_package_is_told_which(cloned: Path) -> None:
    write(cloned / "alertdb/bin/alertdb.py", "import nosuchpackage\n")
    with pytest.raises(SetupError, match="No module named 'nosuchpackage'"):
        open_checkout(NAME, cloned)


def test_peers_are_given_as_name_and_path(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(["fink=there", "rubin-server=/a=b"]) == (
        ("fink", tmp_path / "there"),
        ("rubin-server", Path("/a=b")),
    )
    assert parse([]) == ()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["fink"], "--peer 'fink': give NAME=PATH"),
        (["fink="], "--peer 'fink=': give NAME=PATH"),
        (["lasair=/x"], f"no peer 'lasair': there are {', '.join(PEERS)}"),
        (["fink=/x", "fink=/y"], "the peer fink is given twice"),
    ],
)
def test_other_forms_are_refused(given: list[str], why: str) -> None:
    with pytest.raises(SetupError) as failed:
        parse(given)
    assert str(failed.value).startswith(why)
