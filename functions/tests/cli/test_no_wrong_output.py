"""Objects of a bucket are damaged: no command and no call of the client is wrong unsaid."""

import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.errors import StampedeError
from stampede.read.app import make_app
from stampede_client import connect, detections, images
from stampede_client.errors import IncompleteWarning, StampedeClientError
from tests.support.read.answers import steady
from tests.support.read.read_service import serving
from tests.support.store.rotten import Way, change
from tests.support.store.whole_store import Filled, fill_store

ROUNDS = int(os.environ.get("ROUNDS", "1"))
SEED = int(os.environ.get("SEED", "0")) or (12 if ROUNDS == 1 else time.time_ns() % 1_000_000)
STORES = [6, pytest.param(40 * ROUNDS, marks=pytest.mark.nightly)]
Call = Callable[[Path], Any]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return fill_store(tmp_path_factory.mktemp("store"))


class Flagged(Exception):
    """The response says that it is an error, or that it may lack something."""


def run(*words: str) -> Call:
    """A command; its output, and what it wrote below a folder that replaces OUT."""

    def call(folder: Path) -> Any:
        out = folder / "out"
        written(out)
        result = CliRunner().invoke(app, [word.replace("OUT", str(out)) for word in words])
        assert isinstance(result.exception, SystemExit | StampedeError | None), result.exception
        if result.exit_code:
            raise Flagged(f"{result.output}{result.exception}")
        return steady(result.stdout.encode()), written(out)

    return call


def written(out: Path) -> dict[str, bytes]:
    """The files that a command wrote, without what differs from one run to the next."""
    found = [path for path in (out, *sorted(out.rglob("*"))) if path.is_file()]
    data = {str(path.relative_to(out)): path.read_bytes() for path in found}
    if out.is_dir():
        shutil.rmtree(out)
    out.unlink(missing_ok=True)
    return data


def plain(value: Any) -> Any:
    """A value that can be compared."""
    if isinstance(value, pa.Table):
        return value.to_pylist()
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return repr(value)


def calls_of(filled: Filled, url: str) -> dict[str, Call]:
    """Commands and calls, each with all that it gives."""
    alerts = [str(alert) for alert in filled.alert_ids[::9]]
    names, store = filled.object_ids, filled.settings.store.removeprefix("file://")
    commands = [
        ("audit",),
        ("deadletters", "list"),
        ("publish", "hats", "OUT"),
        ("get", "recent", "--url", url),
        ("get", "packet", alerts[0], "--out", "OUT", "--url", url),
        ("get", "lightcurve", *names, "--url", url),
        ("get", "cutouts", *alerts, "--out", "OUT", "--url", url),
    ]
    client = connect(url, strict=True)
    found: dict[str, Call] = {" ".join(words[:2]): run(*words) for words in commands}
    return found | {
        "detections": lambda _: plain(detections(store).arrow()),
        "detections of": lambda _: plain(detections(store).arrow(names[:2])),
        "images": lambda _: plain(images(store, ids=filled.alert_ids[:5], size=30).planes),
        "client.lightcurves": lambda _: [plain(one) for one in client.lightcurves(names)],
        "client.alert": lambda _: client.alert(alerts[1]),
        "client.cutouts": lambda _: client.cutouts(alerts[1]).bytes("science"),
        "client.recent": lambda _: plain(client.recent()),
    }


def difference(given: Any, truth: Any) -> str:
    """Where two outputs begin to differ."""
    one, other = repr(given), repr(truth)
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))
    return f"{one[at : at + 100]} where {other[at : at + 100]} is true"


def outcome(call: Call, folder: Path) -> Any:
    """What a call gives; None if it says that it failed, or may lack something."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", IncompleteWarning)
            return call(folder)
    except (Flagged, StampedeClientError, IncompleteWarning):
        return None


@pytest.mark.long
@pytest.mark.timeout(900 * ROUNDS)
@pytest.mark.parametrize("stores", STORES)
def test_no_command_and_no_call_is_wrong_unsaid(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: int
) -> None:
    monkeypatch.setenv("STAMPEDE_STORE", filled.settings.store)
    monkeypatch.setattr("stampede.cli.running.DATA", tmp_path / "none")
    dice, root = random.Random(SEED), Path(filled.settings.store.removeprefix("file://"))
    for read in serving(make_app(filled.settings)):
        truth = {name: call(tmp_path) for name, call in calls_of(filled, read.url).items()}
    print(f"again with ROUNDS={ROUNDS} SEED={SEED}")
    wrong, count, keys = list[str](), 0, [info.key for info in filled.objects.list("")]
    for number in range(stores):
        key, way = dice.choice(keys), list(Way)[number % len(Way)]
        changed = change(filled.objects, key, way, dice)
        whole = {each: (root / each).read_bytes() for each in changed}
        for each, data in changed.items():
            _write(root / each, data, later=number % 2)
        for read in serving(make_app(filled.settings)):
            for name, call in calls_of(filled, read.url).items():
                count += 1
                if (given := outcome(call, tmp_path)) is not None and given != truth[name]:
                    wrong.append(f"{way} {key}: {name}: {difference(given, truth[name])}")
        for each, data in whole.items():
            _write(root / each, data, later=-(number % 2))
    print(f"{count} outputs")
    assert not wrong, "\n".join(wrong)


def _write(path: Path, data: bytes, later: int) -> None:
    """Change a file; its etag is of its size and time, and its time is nearly the same."""
    stat = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + later))
