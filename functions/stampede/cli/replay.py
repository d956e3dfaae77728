"""`stampede replay`: send the alerts of a night to Kafka once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from stampede.cli.options import Data
from stampede.cli.terminal import INTERRUPTED, Tally, interruptible, progress_to_stderr
from stampede.errors import SetupError
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    from stampede.handlers.replay.messages import Replayed
    from stampede.handlers.replay.night import Night

SHOWN = 10  # alerts that could not be sent, of which the reason is printed


def replay(
    night: Annotated[int, typer.Option(help="integer MJD (TAI), as in `packets/<night>/`")],
    to: Annotated[
        str | None, typer.Option(help="kafka://HOST:PORT/TOPIC; the topic may be a new one")
    ] = None,
    survey: Annotated[
        str | None, typer.Option(help="such as lsst; needed if the night has alerts of several")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be sent")] = False,
    ignore_retention: Annotated[
        bool,
        typer.Option("--ignore-retention", help="send alerts that the topic will delete again"),
    ] = False,
    data: Data = None,
) -> None:
    """Send the alerts of a night to a Kafka topic, as they came: each message byte for byte.

    History rows of programmes that are not stored (STAMPEDE_ZTF_PROGRAMIDS) are not in it.

    Key, headers and timestamp are those of the first time, byte for byte; partition and offset are
    new. The order is that of each partition, but for a few batches. Use it to feed a new broker or
    filter with a real night, or to bring a topic back that Kafka has deleted.

    Examples:

      stampede replay --night 61138 --dry-run

      stampede replay --night 61138 --survey lsst --to kafka://127.0.0.1:9092/night-61138

    Kafka deletes messages by their timestamps, those of the night: a topic whose retention is over
    for them is refused. Give it `retention.ms=-1` or `message.timestamp.type=LogAppendTime` first.

    A Stampede that stores the target topic already has these alerts: they merge with what it has.
    Ctrl-C stops after the current alert; another start sends all of them again. An alert that is
    damaged, or whose images are past their retention, is named and left out; one whose key or
    headers are lost is named and sent without them. The exit status is then 1. Alerts that came
    through Knative's own KafkaSource are named too: it gives keys and headers as text alone.
    """
    from stampede.cli.running import running, settings_of
    from stampede.events.kafka.login import KafkaLogin
    from stampede.handlers.replay.kafka_sender import check_retention
    from stampede.handlers.replay.night import Night
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    check_options(survey, to, dry_run)
    settings = settings_of(running(data))
    with interruptible() as going:
        alerts = Night(settings, night, survey)
        describe(alerts, night)
        if dry_run or to is None:
            return
        check_one_survey(alerts)
        options, flaws = KafkaLogin(settings).options, Flaws(Counter(), Counter())
        if not ignore_retention:
            check_retention(to, options, alerts.plan.timestamps)
        sent = send_unstopped(alerts, to, options, flaws, going)
        stopped = not going() and sent < len(alerts)
    report_flaws(flaws)
    if stopped:
        raise typer.Exit(INTERRUPTED)
    if flaws.refused or flaws.lacking["lost"]:
        raise typer.Exit(1)


class Flaws(NamedTuple):
    """What is not as it came: counts of what `whole` refuses, and of what `named` lacks."""

    refused: Counter[str]
    lacking: Counter[str]


def check_options(survey: str | None, to: str | None, dry_run: bool) -> None:
    """Raise `SetupError` if there is no such survey, or no topic to send to."""
    from stampede.alerts.surveys import names
    from stampede.handlers.replay.kafka_sender import parse_topic

    if survey not in (None, *names()):
        raise SetupError(f"no survey {survey!r}: there are {', '.join(names())}")
    if not dry_run:
        if to is None:
            raise SetupError("say where to send the alerts: --to kafka://HOST:PORT/TOPIC")
        parse_topic(to)


def check_one_survey(alerts: Night) -> None:
    """Raise `SetupError` if the alerts are of several surveys."""
    surveys = sorted({name for name, _ in alerts.plan.counts})
    if len(surveys) > 1:
        many = " and ".join(surveys)
        raise SetupError(f"the night has alerts of {many}: choose one with --survey")


def send_unstopped(
    alerts: Night, to: str, options: dict[str, str], flaws: Flaws, going: Callable[[], bool]
) -> int:
    """Send the alerts while `going`, count their flaws, and print the progress; return how many."""
    from stampede.handlers.replay.kafka_sender import send

    tally = Tally[int](lambda size: size)
    sendable = named(whole(alerts, flaws.refused), flaws.lacking)
    try:
        with progress_to_stderr(len(alerts), tally) as progress:
            return send(takewhile(lambda _: going(), sendable), to, options, progress)
    finally:
        typer.echo(f"{tally} to {to}")


def report_flaws(flaws: Flaws) -> None:
    """Print how many alerts were not sent, and how many without all that they came with."""
    if count := flaws.refused["alerts"]:
        typer.echo(f"not whole and not sent: {counted(count, 'alert')}", err=True)
    if count := flaws.refused["packs"]:
        typer.echo(f"not read, so their alerts were not sent: {counted(count, 'pack')}", err=True)
    if count := flaws.lacking["lost"]:
        typer.echo(f"sent without a part of key or headers: {counted(count, 'alert')}", err=True)
    if count := flaws.lacking["unknown"]:
        typer.echo(
            f"{counted(count, 'alert')} sent with the keys and headers of their events, which did "
            "not come from Stampede's source: an empty key, a null or repeated header, the case "
            "and punctuation of names and the order are lost, if they had any",
            err=True,
        )


def describe(alerts: Night, night: int) -> None:
    """Print what is stored of a night."""
    for (survey, topic), number in sorted(alerts.plan.counts.items(), key=str):
        where = f"the topic {topic}" if topic else "files"
        typer.echo(f"night MJD {night}: {counted(number, 'alert')} of {survey} from {where}")
    if alerts.plan.unreadable:
        typer.echo(f"night MJD {night}: {counted(alerts.plan.unreadable, 'pack')} cannot be read")


def whole(alerts: Night, refused: Counter[str]) -> Iterator[Replayed]:
    """The alerts that can be sent; counts others as "alerts", or "packs", and prints the first."""
    from stampede.handlers.replay.messages import Unsendable

    for alert in alerts:
        if not isinstance(alert, Unsendable):
            yield alert
            continue
        refused["packs" if alert.alert_id is None else "alerts"] += 1
        if sum(refused.values()) > SHOWN:
            continue
        if alert.alert_id is None:
            typer.echo(alert.why, err=True)
        else:
            typer.echo(f"alert {alert.alert_id} is not whole: {alert.why}", err=True)


def named(alerts: Iterator[Replayed], lacking: Counter[str]) -> Iterator[Replayed]:
    """The alerts; counts those of whose key and headers something is "lost", or may be ("unknown").

    The first ones are printed.
    """
    for alert in alerts:
        if alert.lost != "":
            kind = "unknown" if alert.lost is None else "lost"
            lacking[kind] += 1
            if lacking[kind] <= SHOWN:
                what = alert.lost or "whatever of its key and headers is no plain text"
                typer.echo(f"alert {alert.alert_id} is sent without {what}", err=True)
        yield alert
