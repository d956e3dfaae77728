"""The commands that run Stampede on one machine, and those that ask a running one."""

import asyncio
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from stampede.errors import StampedeError, StoreDown
from stampede.local.process import free_port
from stampede.local.system import DATA, TOPICS, Plan, Running, running, ways_of
from stampede.logs import configure_logs
from stampede.settings import Settings
from stampede.store.ledger import Entry
from stampede.store.open import open_objects

Data = Annotated[
    Path, typer.Option(help="directory of the local Ceph and Kafka, logs, and what is running")
]


def plan_of(
    data: Path,
    store: str | None,
    kafka: str | None,
    topics: str,
    port: int,
    install: bool,
    replica: str | None = None,
    second_site: bool = False,
) -> Plan:
    """Options as a plan."""
    names = tuple(name.strip() for name in topics.split(",") if name.strip())
    return Plan(data.absolute(), store, kafka, names, port, install, replica, second_site)


def up(
    store: Annotated[
        str | None,
        typer.Option(
            help="http(s)://HOST:PORT/BUCKET of your S3 endpoint (keys in STAMPEDE_ACCESS_KEY, "
            "STAMPEDE_SECRET_KEY), or file:///DIRECTORY; without it, a local Ceph is started"
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of your Kafka; without it, a local one is started"),
    ] = None,
    topics: Annotated[
        str, typer.Option(help="Kafka topics to read, comma-separated; '' for no Kafka at all")
    ] = ",".join(TOPICS),
    replica: Annotated[
        str | None,
        typer.Option(
            help="store of a second site, to which everything is copied, as for --store (keys in "
            "STAMPEDE_REPLICA_ACCESS_KEY, STAMPEDE_REPLICA_SECRET_KEY)"
        ),
    ] = None,
    second_site: Annotated[
        bool, typer.Option("--second-site", help="start a second local Ceph and copy to that")
    ] = False,
    port: Annotated[int, typer.Option(help="where `read` answers")] = 8080,
    data: Data = DATA,
    install: Annotated[
        bool, typer.Option(help="install Debian packages that are missing (as root)")
    ] = os.geteuid() == 0,
) -> None:
    """Run everything on this machine until Ctrl-C; a second `up` finds its data again.

    Your Kafka and S3 endpoint by URL, or a local Kafka and a local Ceph that are installed and
    started. Then, in another terminal: stampede simulate, stampede ingest, stampede audit.
    """
    from stampede.local import up as local

    configure_logs()
    plan = plan_of(data, store, kafka, topics, port, install, replica, second_site)
    local.up(plan, local.make_console())


def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Avro files, folders, tarballs of alerts")],
    data: Data = DATA,
    store: Annotated[
        str | None,
        typer.Option(help="with no `stampede up` running: where to store, as for `up`"),
    ] = None,
) -> None:
    """Store alerts from disk, in place of Kafka; then prove that each is stored.

    Goes to the `stampede up` that is running, or starts the functions for as long as it takes.
    Running it again is harmless. Exits with 1 if any alert is missing afterwards.
    """
    from stampede.local import files
    from stampede.local.up import make_console, running_system

    configure_logs()
    files.find(paths)  # raises before anything is started
    console = make_console()
    if found := running(data.absolute()):
        sys.exit(_ingest(paths, found, console))
    plan = plan_of(data, store, None, "", free_port(), os.geteuid() == 0)
    with running_system(plan, console) as system:
        sys.exit(_ingest(paths, Running(system.settings, system.urls), console))


def _ingest(paths: list[Path], found: Running, console: Console) -> int:
    from stampede.local.ingest import ingest as send

    objects = open_objects(found.settings)
    with Progress(
        TextColumn("ingesting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("alerts"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("", total=None)

        async def run():
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
            tell = lambda count: progress.update(task, completed=count)  # noqa: E731
            return await send(paths, ways_of(found.urls), objects, found.settings, stop, tell)

        done = asyncio.run(run())
    if not done.complete:
        console.print(
            f"stopped after {done.alerts:,} alerts; run the same again to store the rest: "
            "what is stored stays, and is not stored twice"
        )
        return 130
    return report(entries_of(found.settings, [done.topic]), console_out())


def demo(
    alerts: Annotated[int, typer.Option(min=1, help="how many simulated alerts")] = 2000,
    alerts_from: Annotated[
        Path | None, typer.Option(help="Avro files, a folder or a tarball of real alerts instead")
    ] = None,
    seed: Annotated[int, typer.Option(help="another seed, another sky")] = 1,
    port: Annotated[int, typer.Option(help="where `read` answers")] = 8080,
    data: Annotated[Path, typer.Option(help="where the demo keeps its data")] = Path(".stampede"),
    install: Annotated[
        bool, typer.Option(help="install Debian packages that are missing (as root)")
    ] = os.geteuid() == 0,
) -> None:
    """Show it: Kafka, Ceph and all functions here, alerts sent, stored, fetched back, compared.

    With a terminal it stays up for a look until Ctrl-C. The exit status is 0 only if every
    alert is accounted for and every cutout comes back as it was sent.
    """
    from stampede.local.demo import demo as run

    configure_logs()
    sys.exit(
        run(plan_of(data, None, None, ",".join(TOPICS), port, install), alerts, alerts_from, seed)
    )


class Site(StrEnum):
    """Which store is asked."""

    STORE = "store"
    REPLICA = "replica"


def audit(
    topics: Annotated[
        list[str] | None, typer.Argument(help="topics; without any, all that the store knows of")
    ] = None,
    site: Annotated[
        Site, typer.Option(help="the store itself, or the second site, held against the store too")
    ] = Site.STORE,
    data: Data = DATA,
) -> None:
    """Prove that every offset of a topic is stored or dead-lettered, in both tables.

    What is missing is named, and the exit status is then 1. Asks the `stampede up` that is
    running, or what STAMPEDE_STORE, STAMPEDE_REPLICA and STAMPEDE_KAFKA say.
    """
    found = running(data.absolute())
    settings = found.settings if found else Settings()
    everything = not topics
    if everything and found and settings.topics:
        topics = settings.topics.split(",")
    if site is Site.REPLICA:
        sys.exit(_audit_replica(settings, topics or [], everything, console_out()))
    sys.exit(report(entries_of(settings, topics or [], everything), console_out()))


def _audit_replica(
    settings: Settings, topics: list[str], everything: bool, console: Console
) -> int:
    from stampede.audit import audit as prove
    from stampede.audit import lacks
    from stampede.functions.replicate import make_replica

    replica = make_replica(settings)
    first, second, lacking = replica.source, replica.target, []
    try:
        # Of the second site last: what it got meanwhile is not missing.
        lacking = lacks(replica.missing())
        entries = prove(first, settings, topics, everything, second)
    except StoreDown as error:
        entries = prove(second, settings, topics, everything)  # raises if it is this one
        console.print("the first site does not answer; the second proves by itself:")
        console.print(error.message, style="yellow", highlight=False, soft_wrap=True)
    finally:
        replica.close()
    status = report(entries, console, ends=True)
    for lack in lacking:
        more = ", …" if lack.objects > len(lack.some) else ""
        console.print(
            f"not there yet: {lack.objects:,} of {lack.kind}/, {lack.bytes / 1e6:,.1f} MB: "
            f"{', '.join(lack.some)}{more}",
            style="bold red",
            highlight=False,
            soft_wrap=True,
        )
    return 1 if lacking else status


def reconcile(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say what there is to repair")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="look into packs of whatever age, not only new ones")
    ] = False,
    data: Data = DATA,
) -> None:
    """Find what events missed and repair it: one pass of the function of that name.

    Packs without their run, packs without thumbnails, what the second site lacks, what is past its
    retention, what nobody needs. A store or a Broker that is away or too busy is tried again for
    a minute. The exit status is 1 if anything is left to repair.
    """
    from stampede.functions.reconcile import Found, Reconciler, patiently

    configure_logs()
    found = running(data.absolute())
    settings = found.settings if found else Settings()
    if found and not settings.sink:
        settings = settings.model_copy(update={"sink": found.urls.get("broker", "")})
    console, left = console_out(), 0

    def tell(what: Found) -> None:
        nonlocal left
        left += not what.repaired
        done = "" if what.repaired else " (not repaired)"
        console.print(f"{what.what}: {what.key}{done}", highlight=False, soft_wrap=True)

    reconciler = Reconciler(settings, tell)

    def once() -> None:
        nonlocal left
        left = 0
        reconciler.run(not dry_run, everything)

    def again(error: StampedeError, pause: float) -> None:
        again = f"{error.message}: once more in {pause:.0f} s"
        console.print(again, style="yellow", highlight=False, markup=False, soft_wrap=True)

    patiently(once, again)
    if not left:
        console.print("nothing is left to repair", style="green")
    sys.exit(min(left, 1))


def entries_of(settings: Settings, topics: list[str], everything: bool = False) -> list[Entry]:
    """The ledger of these topics, or of all that the store knows besides."""
    from stampede.audit import audit as prove

    return prove(open_objects(settings), settings, topics, everything)


def report(entries: list[Entry], console: Console, ends: bool = False) -> int:
    """Print the ledger, with `ends` also from which offset on it lacks any; the exit status."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    headings = ["table", "topic", "partition", "received", "stored", "dead letters", "missing"]
    for heading in (*headings, *(["complete below"] if ends else [])):
        table.add_column(heading, justify="left" if heading in ("table", "topic") else "right")
    for entry in entries:
        table.add_row(
            entry.table,
            entry.topic,
            str(entry.partition),
            f"{entry.high - entry.low:,}",
            f"{entry.stored:,}",
            f"{entry.dead_lettered:,}",
            f"{entry.missing_count:,}",
            *([f"{entry.missing[0][0] if entry.missing else entry.high:,}"] if ends else []),
            style="bold red" if entry.missing else "",
        )
    console.print(table)
    for entry in entries:
        for low, high in entry.missing[:20]:
            console.print(
                f"missing from {entry.table}: {entry.topic} partition {entry.partition}, "
                f"offsets {low:,} to {high - 1:,}",
                style="bold red",
                highlight=False,
            )
    missing = sum(entry.missing_count for entry in entries)
    if missing:
        console.print(f"{missing:,} offsets are neither stored nor dead letters", style="bold red")
        return 1
    if not any(entry.high > entry.low for entry in entries):
        console.print("nothing was received yet, so nothing is missing")
        return 0
    console.print("nothing is missing", style="green")
    return 0


def console_out() -> Console:
    """Where results go: stdout, wide enough where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=140)
