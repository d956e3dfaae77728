"""The commands that run Stampede on one machine: `stampede up`, `stampede demo`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stampede.cli.options import DATA, Data, parse_topics, progress_console
from stampede.errors import SetupError
from stampede.telemetry.logs import configure_command_logs
from stampede_local.plan import SystemPlan

Install = Annotated[
    bool,
    typer.Option(help="install Debian packages that are missing", show_default="if you are root"),
]
IS_ROOT = os.geteuid() == 0
TOPICS = ("lsst-alerts", "ztf-alerts")


def names_of(topics: str) -> tuple[str, ...]:
    """The topics and families that an option names. Raises `SetupError`."""
    parse_topics(topics)  # raises if one is neither a name nor a family
    return tuple(name.strip() for name in topics.split(",") if name.strip())


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
    ceph_port: Annotated[
        int | None,
        typer.Option(
            help="of the local Ceph, which takes the next one too",
            show_default="that of the last start, or 8400, or a free one if that is taken",
        ),
    ] = None,
    kafka_port: Annotated[
        int | None,
        typer.Option(
            help="of the local Kafka, which takes the next one too",
            show_default="that of the last start, or 9092, or a free one if that is taken",
        ),
    ] = None,
    triggers: Annotated[
        Path | None,
        typer.Option(
            help="file with the Triggers of functions of your own, each with the `uri` of its "
            "subscriber (docs/how-to/own-function.md); needs the local Ceph"
        ),
    ] = None,
    data: Data = None,
    install: Install = IS_ROOT,
) -> None:
    """Run everything on this machine until Ctrl-C; a second `up` finds its data again.

    Give the URLs of your Kafka and S3 endpoint; otherwise a local Kafka and Ceph are installed and
    started. Then, in another terminal: stampede simulate, stampede ingest, stampede audit.
    """
    from stampede_local import up as local

    configure_command_logs()
    plan = SystemPlan(
        (data or DATA).absolute(),
        store,
        kafka,
        names_of(topics),
        port,
        install,
        replica,
        second_site,
        sources,
        ceph_port,
        kafka_port,
        triggers,
    )
    check_options(plan)
    local.up(plan, progress_console())


def check_options(plan: SystemPlan) -> None:
    """Raise `SetupError` if an option is of a server that is not started."""
    if plan.ceph_port is not None and plan.store:
        raise SetupError("--ceph-port is of a local Ceph, and with --store none is started")
    if plan.kafka_port is not None and (plan.kafka or not plan.topics):
        raise SetupError("--kafka-port is of a local Kafka, and none is started")
    if plan.triggers and plan.store:
        raise SetupError(
            "--triggers needs the local Ceph, whose notifications become events: leave out --store"
        )


def demo(
    alerts: Annotated[int, typer.Option(min=1, help="how many simulated alerts")] = 2000,
    alerts_from: Annotated[
        Path | None, typer.Option(help="Avro files, a folder or a tarball of real alerts instead")
    ] = None,
    seed: Annotated[int, typer.Option(help="another seed, another sky")] = 1,
    port: Annotated[int, typer.Option(help="where `read` answers")] = 8080,
    data: Annotated[Path, typer.Option(help="where the demo keeps its data")] = Path(".stampede"),
    install: Install = IS_ROOT,
) -> None:
    """Demonstrate it: start Kafka, Ceph and all functions, send alerts, fetch and compare them.

    With a terminal the system then stays up until Ctrl-C. The exit status is 0 only if every alert
    is accounted for and every cutout comes back as it was sent.
    """
    from stampede_local.demo.demo import demo as run

    configure_command_logs()
    plan = SystemPlan(data.absolute(), None, None, TOPICS, port, install)
    sys.exit(run(plan, alerts, alerts_from, seed))
