"""`stampede bench`: measure on this machine, write build/bench.json and build/bench.md."""

import os
import shlex
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stampede.errors import SetupError, StampedeError
from stampede.telemetry.logs import configure_logs
from stampede_bench.peers.checkout import PEERS, parse
from stampede_bench.registry import BENCHMARKS, USUAL, measure_of


class Pool(StrEnum):
    """The pools that `layout` can measure."""

    EC = "ec"


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help=f"{', '.join(BENCHMARKS)}; without a name, all but peers",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option(help="less than a minute each")] = False,
    out: Annotated[Path, typer.Option(help="directory of bench.json and bench.md")] = Path("build"),
    real: Annotated[
        Path | None,
        typer.Option(help="directory of real alerts: lsst/, ztf/ and perhaps lsst-detectors/"),
    ] = None,
    pool: Annotated[
        Pool | None,
        typer.Option(help="`layout` on three OSDs: an erasure-coded pool beside pools of copies"),
    ] = None,
    install: Annotated[
        bool, typer.Option(help="install Debian packages that are missing (as root)")
    ] = os.geteuid() == 0,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help=f"of peers: checkout of {', '.join(PEERS)}, with a .venv of its own; repeatable",
        ),
    ] = None,
) -> None:
    """Measure: every rate beside its rival or limit, CPU time by process as well as wall time.

    A benchmark that needs Ceph or Kafka starts its own on 127.0.0.1 and removes the data
    afterwards. If a benchmark fails, the others still run. The exit status is 1 if one failed or if
    a figure misses its bound.
    """
    configure_logs()
    # As Ctrl-C: paused processes go on, servers end, and what they stored is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from stampede_bench import report
    from stampede_bench.figures import Context, Figure
    from stampede_bench.machine import machine, versions
    from stampede_bench.own_process import measured

    if pool and names != ["layout"]:
        raise SetupError("--pool is an option of `stampede bench layout` alone")
    if peer and "peers" not in (names or ()):
        raise SetupError("--peer is an option of `stampede bench peers` alone")
    chosen = {name: measure_of(name) for name in names or USUAL}
    peers = parse(peer or ())
    console = Console(file=sys.stderr)
    begin = time.monotonic()

    def progress(text: str) -> None:
        console.print(
            f"[dim]{time.monotonic() - begin:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True
        )

    about = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
    }
    found: dict[str, list[Figure]] = {}
    failed: dict[str, str] = {}
    took: dict[str, float] = {}  # seconds
    for name, measure in chosen.items():
        started = time.monotonic()
        os.sync()  # what was written before must not delay this one's first requests
        progress(f"{name}: {BENCHMARKS[name].title}")
        with tempfile.TemporaryDirectory(prefix="stampede-bench-") as scratch:
            context = Context(quick, Path(scratch), progress, real, install, pool, peers=peers)
            found[name] = []
            try:
                found[name].extend(measured(measure, context))
            except StampedeError as error:  # keep the other figures, which may have taken hours
                failed[name] = str(error)
                progress(f"{name} failed: {error}")
        took[name] = round(time.monotonic() - started, 1)
        progress(f"{name} took {took[name]:.0f} s")
        command = shlex.join(["stampede", *sys.argv[1:]])
        whole = about | {"failed": failed, "took": took}
        report.write(out, report.document(whole, command, found), found)
    typer.echo((out / "bench.md").read_text())
    progress(f"written: {out / 'bench.json'}, {out / 'bench.md'}")
    figures = [figure for benchmark in found.values() for figure in benchmark]
    missed = [figure for figure in figures if figure.met is False]
    for figure in missed:
        progress(f"missed: {figure.subject}, {figure.name}: {report.row(figure)}")
    for name, why in failed.items():
        progress(f"failed: {name}: {why}")
    progress(report.verdict(found) + (f", {len(failed)} benchmarks failed" if failed else ""))
    sys.exit(1 if missed or failed else 0)
