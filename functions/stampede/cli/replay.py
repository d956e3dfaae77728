"""`stampede replay`: send the alerts of a night to Kafka once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import DATA, Data
from stampede.cli.terminal import INTERRUPTED, Tally, interruptible, progress_to_stderr
from stampede.errors import SetupError

if TYPE_CHECKING:
    from stampede.functions.replay import Night, Replayed

SHOWN = 10  # alerts that could not be sent, of which the reason is printed


def replay(
    night: Annotated[int, typer.Option(help="integer MJD (TAI), as in `packets/<night>/`")],
    to: Annotated[
        str | None, typer.Option(help="kafka://HOST:PORT/TOPIC; the topic may be a new one")
    ] = None,
    survey: Annotated[
        str | None, typer.Option(help="lsst or ztf; needed if the night has alerts of both")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be sent")] = False,
    data: Data = DATA,
) -> None:
    """Send the alerts of a night to a Kafka topic, as they came: each message byte for byte.

    Key, headers and timestamp are those of the first time; partition and offset are new. The order
    is that of the topic, but for a few batches. Use it to feed a new broker or filter with a real
    night, or to bring a topic back that Kafka has deleted.

    Examples:

      stampede replay --night 61138 --dry-run

      stampede replay --night 61138 --survey lsst --to kafka://127.0.0.1:9092/night-61138

    A Stampede that stores the target topic already has these alerts: they merge with what it has.
    Ctrl-C stops after the current alert; another start sends all of them again. An alert whose
    images are past their retention, or damaged, is named and left out; the exit status is then 1.
    """
    from stampede.alerts.surveys import names
    from stampede.cli.running import running, settings_of
    from stampede.functions.kafka_sender import parse_topic, send
    from stampede.functions.replay import Night
    from stampede.logs import configure_logs

    configure_logs()
    if survey not in (None, *names()):
        raise SetupError(f"no survey {survey!r}: there are {', '.join(names())}")
    if not dry_run:
        if to is None:
            raise SetupError("say where to send the alerts: --to kafka://HOST:PORT/TOPIC")
        parse_topic(to)
    settings = settings_of(running(data.absolute()))
    with interruptible() as going:
        alerts = Night(settings, night, survey)
        describe(alerts, night)
        if dry_run or to is None:
            return
        surveys = sorted({name for name, _ in alerts.counts})
        if len(surveys) > 1:
            many = " and ".join(surveys)
            raise SetupError(f"the night has alerts of {many}: choose one with --survey")
        tally, refused = Tally[int](lambda size: size), Counter[str]()
        unstopped = takewhile(lambda _: going(), whole(alerts, refused))
        with progress_to_stderr(len(alerts), tally) as progress:
            sent = send(unstopped, to, settings.kafka_options, progress)
        stopped = not going()
    typer.echo(f"{tally} to {to}")
    if refused:
        typer.echo(f"{sum(refused.values()):,} alerts are not whole and were not sent", err=True)
    if stopped and sent < len(alerts):
        raise typer.Exit(INTERRUPTED)
    if refused:
        raise typer.Exit(1)


def describe(alerts: Night, night: int) -> None:
    """Print what is stored of a night."""
    for (survey, topic), number in sorted(alerts.counts.items(), key=str):
        where = f"the topic {topic}" if topic else "files"
        typer.echo(f"night MJD {night}: {number:,} alerts of {survey} from {where}")


def whole(alerts: Night, refused: Counter[str]) -> Iterator[Replayed]:
    """The alerts that can be sent; counts the others by reason, and prints the first ones."""
    from stampede.functions.replay import Unsendable

    for alert in alerts:
        if not isinstance(alert, Unsendable):
            yield alert
            continue
        refused[alert.why] += 1
        if sum(refused.values()) <= SHOWN:
            typer.echo(f"alert {alert.alert_id} is not whole: {alert.why}", err=True)
