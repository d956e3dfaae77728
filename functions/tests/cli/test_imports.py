"""What each command imports: imports cost time, and a function must start from zero fast."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stampede_simulator.faults import FAULTS

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration

HEAVY = {"asyncio", "numpy", "pyarrow", "pydantic", "structlog", "uvicorn"}
# A number, not seconds: those depend on the machine (0.16 to 0.4 s of CPU). `stampede --help` loads
# 290, a command's up to 355, half of them Python's own.
HELP_MODULES = 420

RUN = """
import atexit, sys

atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))
from stampede.cli.main import main
main()
"""


def run(*arguments: str, **env: str) -> tuple[str, set[str]]:
    """The output of a command, and the modules that it loaded."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STAMPEDE_")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean | {"COLUMNS": "300", "TERM": "dumb"} | env,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.split())


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    help_text, modules = run("--help")
    assert all(f" {command} " in help_text for command in ("up", "demo", "bench", "deadletters"))
    assert not HEAVY & packages(modules)
    assert len(modules) < HELP_MODULES


@pytest.mark.parametrize("command", ["audit", "up", "deadletters list", "get cone"])
def test_help_of_a_command_draws_no_frames(command: str) -> None:
    help_text, modules = run(*command.split(), "--help")
    assert "[env var: STAMPEDE_DATA" in " ".join(help_text.split())  # wrapped
    assert not {"typer.rich_utils", "rich.markdown", "numpy", "pyarrow"} & modules
    assert len(modules) < HELP_MODULES


@pytest.mark.parametrize(
    ("words", "completed"), [("stampede aud", "audit"), ("stampede audit --js", "--json")]
)
def test_shells_complete_commands_and_options(words: str, completed: str) -> None:
    completion = {
        "_STAMPEDE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = "import sys; sys.argv = ['stampede']; from stampede.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | completion,
    )
    assert done.stdout.split() == [completed]


def test_listing_dead_letters_loads_no_ceph_and_no_functions(tmp_path: Path) -> None:
    store = {"STAMPEDE_STORE": f"file://{tmp_path}/store", "XDG_DATA_HOME": str(tmp_path)}
    listed, modules = run("deadletters", "list", **store)
    assert "no dead letters" in listed
    assert not {"stampede_local", "stampede_bench", "uvicorn"} & packages(modules)
    assert not [name for name in modules if name.startswith("stampede.handlers.")]


STARTS = """
import sys
from stampede.handlers.apps import make_app
from stampede.config.settings import Settings

make_app(sys.argv[1], Settings(store="http://127.0.0.1:1/bucket"))
print(*sorted(sys.modules))
"""


@pytest.mark.parametrize(
    ("function", "later"),
    [
        (
            "read",
            {"astropy", "cdshealpix", "datafusion", "fastavro", "PIL", "confluent_kafka"}
            | {"minio", "jinja2"},
        ),
        *(
            (
                name,
                {"astropy", "cdshealpix", "datafusion", "fastavro", "PIL", "confluent_kafka"}
                | {"minio"},
            )
            for name in ("cutouts", "lightcurves")  # their workers import what decodes
        ),
    ],
)
def test_a_function_starts_without_what_only_some_requests_need(
    function: str, later: set[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS, function], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "starlette" in packages(set(done.stdout.split()))
    assert not later & packages(set(done.stdout.split()))


STORES = """
import sys
from stampede.handlers.apps import batch_storer
from stampede.config.settings import Settings

batch_storer("cutouts", Settings(store="http://127.0.0.1:1/bucket"))
print(*sorted(sys.modules))
"""


def test_a_worker_imports_before_its_first_batch_what_stores_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STORES], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert {"minio", "pyarrow.compute", "datafusion"} <= set(done.stdout.split())


def test_help_names_every_fault() -> None:
    help_text, modules = run("simulate", "--help")
    assert "stampede_simulator.faults" not in modules
    words = set(help_text.replace(",", " ").split())
    assert set(FAULTS) <= words


COUNT = """
import atexit, os
atexit.register(lambda: print("threads", len(os.listdir("/proc/self/task"))))
from stampede.cli.main import main
main()
"""


@pytest.mark.long
def test_numpy_starts_no_threads_for_matrices_unless_it_is_told_to(tmp_path: Path) -> None:
    def threads(**env: str) -> int:
        store = {"STAMPEDE_STORE": f"file://{tmp_path}/store", "XDG_DATA_HOME": str(tmp_path)}
        clean = {name: value for name, value in os.environ.items() if "OPENBLAS" not in name}
        done = subprocess.run(
            [sys.executable, "-c", COUNT, "deadletters", "list"],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean | store | env,
        )
        return int(done.stdout.rpartition("threads ")[2])

    assert threads() == threads(OPENBLAS_NUM_THREADS="1")
    if (os.cpu_count() or 1) > 1:
        assert threads(OPENBLAS_NUM_THREADS="2") == threads() + 1
