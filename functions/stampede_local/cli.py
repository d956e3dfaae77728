"""The commands that run Stampede on one machine: `stampede up`, `stampede demo`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stampede.cli.options import DATA, Data, parse_topics, progress_console
from stampede.telemetry.logs import configure_command_logs
from stampede_local.plan import SystemPlan

TOPICS = ("lsst-alerts", "ztf-alerts")


def plan_of(
    data: Path,
    store: str | None,
    kafka: str | None,
    topics: str,
    port: int,
    install: bool,
    replica: str | None = None,
    second_site: bool = False,
    sources: bool = False,
) -> SystemPlan:
    """The plan that the options describe."""
    parse_topics(topics)  # raises if one is neither a name nor a family
    names = tuple(name.strip() for name in topics.split(",") if name.strip())
    data = data.absolute()
    return SystemPlan(data, store, kafka, names, port, install, replica, second_site, sources)


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
        str,
        typer.Option(
            help="Kafka topics to read, comma-separated, or families such as "
            "ztf_{YYYYMMDD}_programid1; '' for no Kafka at all"
        ),
    ] = ",".join(TOPICS),
    replica: Annotated[
        str | None,
        typer.Option(
            help="store of a second site, to which everything is copied, like --store (keys in "
            "STAMPEDE_REPLICA_ACCESS_KEY, STAMPEDE_REPLICA_SECRET_KEY)"
        ),
    ] = None,
    second_site: Annotated[
        bool, typer.Option("--second-site", help="start a second local Ceph and copy to that")
    ] = False,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources",
            help="give `cutouts` and `lightcurves` a source, as on a cluster; without this "
            "one process, `alerts`, reads Kafka itself and does the work of both, for less CPU",
        ),
    ] = False,
    port: Annotated[int, typer.Option(help="where `read` answers")] = 8080,
    data: Data = None,
    install: Annotated[
        bool, typer.Option(help="install Debian packages that are missing (as root)")
    ] = os.geteuid() == 0,
) -> None:
    """Run everything on this machine until Ctrl-C; a second `up` finds its data again.

    Give the URLs of your Kafka and S3 endpoint; otherwise a local Kafka and Ceph are installed and
    started. Then, in another terminal: stampede simulate, stampede ingest, stampede audit.
    """
    from stampede_local import up as local

    configure_command_logs()
    data = data or DATA
    plan = plan_of(data, store, kafka, topics, port, install, replica, second_site, sources)
    local.up(plan, progress_console())


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
    """Demonstrate it: start Kafka, Ceph and all functions, send alerts, fetch and compare them.

    With a terminal the system then stays up until Ctrl-C. The exit status is 0 only if every alert
    is accounted for and every cutout comes back as it was sent.
    """
    from stampede_local.demo.demo import demo as run

    configure_command_logs()
    sys.exit(
        run(plan_of(data, None, None, ",".join(TOPICS), port, install), alerts, alerts_from, seed)
    )
