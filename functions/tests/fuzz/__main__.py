"""``python -m tests.fuzz``: each target under atheris for some seconds, then the HTTP interface.

atheris steers by the branches that the bytes reach. An input that fails is kept in
``build/fuzz/<target>``; give its path after ``--replay``. ``--corpora`` replays all that are kept.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

OPENAPI = "openapi"
WORK = Path(__file__).parents[3] / "build" / "fuzz"
HANGS_AFTER = 20  # seconds for one input
MEMORY = 2048  # MB


def main() -> int:
    """Run the targets of the command line, one process each. Returns 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", choices=[*TARGETS, OPENAPI], action="append")
    parser.add_argument("--replay", type=Path, help="run one target on a file or a folder")
    parser.add_argument("--corpora", action="store_true", help="run the targets on what is kept")
    parser.add_argument("--under-atheris", choices=TARGETS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.under_atheris:
        return _under_atheris(arguments.under_atheris, arguments.seconds)
    if arguments.corpora:
        return _replay_corpora(arguments.target or [*TARGETS])
    if arguments.replay:
        _replay(arguments.target[0], arguments.replay)
        return 0
    failed = []
    for name in arguments.target or [*TARGETS, OPENAPI]:
        print(f"--- {name}, {arguments.seconds} s", flush=True)
        if name == OPENAPI:
            command = ["-m", "tests.fuzz.openapi", str(arguments.seconds)]
        else:
            command = ["-m", "tests.fuzz", "--seconds", str(arguments.seconds)]
            command += ["--under-atheris", name]
        if subprocess.run([sys.executable, *command], check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "no target failed")
    return 1 if failed else 0


def _replay(name: str, path: Path) -> None:
    """Run a target on a file, or on each of a folder; print their names."""
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        print(file, flush=True)  # before it runs: it may end the process
        TARGETS[name].run(file.read_bytes())


def _replay_corpora(names: list[str]) -> int:
    """Run targets on their seeds and on all files that fuzzing kept. Returns 1 if one fails."""
    failed = []
    for name in names:
        corpus = str(_corpus(name))
        command = [sys.executable, "-m", "tests.fuzz", "--target", name, "--replay", corpus]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        inputs = done.stdout.splitlines()
        print(f"{name}: {len(inputs)} inputs", flush=True)
        if done.returncode:
            failed.append(f"{name} at {inputs[-1] if inputs else 'its start'}")
    print(f"failed: {', '.join(failed)}" if failed else "no target failed")
    return 1 if failed else 0


def _corpus(name: str) -> Path:
    """The folder of a target: its seeds, and the files that fuzzing kept."""
    corpus = WORK / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    return corpus


def _under_atheris(name: str, seconds: int) -> int:
    import atheris  # only the environment for fuzzing has it

    corpus = _corpus(name)
    atheris.instrument_all()
    options = [f"-max_total_time={seconds}", f"-timeout={HANGS_AFTER}", f"-rss_limit_mb={MEMORY}"]
    options += [f"-artifact_prefix={corpus}/failed-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[name].run)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
