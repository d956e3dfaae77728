"""`stampede simulate`: make alerts, and send or write them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from stampede.cli.options import Data
from stampede.cli.terminal import INTERRUPTED, Tally, interruptible, progress_to_stderr
from stampede.errors import SetupError

if TYPE_CHECKING:
    from pathlib import Path

    from stampede.config.settings import Settings
    from stampede_simulator.alert_bytes import SimulatedAlert
    from stampede_simulator.simulator import Simulator

FAULTS = (  # the names in `stampede_simulator.faults.FAULTS`, which `--help` must not import
    "empty, magic, truncated, trailing, zeros, unknown-schema, wrong-schema, no-time, future, "
    "not-fits"
)


To = Annotated[
    str | None,
    typer.Option(
        help="kafka://HOST:PORT (?lsst=TOPIC&ztf=TOPIC, with {YYYYMMDD} for today), FILE.tar, or "
        "a folder; without it, the Kafka of the `stampede up` that runs here"
    ),
]
Alerts = Annotated[int, typer.Option(min=1, help="how many messages")]
Seed = Annotated[int, typer.Option(min=0, help="another seed, another sky")]
LsstShare = Annotated[float, typer.Option(min=0, max=1, help="the rest is ZTF's")]
FieldObjects = Annotated[int, typer.Option(min=1, help="objects in a field, on one detector")]
Nights = Annotated[int, typer.Option(min=1, max=340, help="nights that a field is observed")]
SolarSystem = Annotated[
    float, typer.Option(min=0, max=1, help="share of Rubin's alerts that show a small body")
]
NullCutouts = Annotated[
    float, typer.Option(min=0, max=1, help="share that lacks one cutout or more")
]
Duplicates = Annotated[
    float, typer.Option(min=0, max=1, help="share that repeats an earlier message")
]
History = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="mean of history rows of Rubin's first alerts, spread from 0 to twice as many; it "
        "sets --nights. Real alerts have 0 to 1,153 rows",
    ),
]
Late = Annotated[float, typer.Option(min=0, max=1, help="share that comes after later ones")]
Missing = Annotated[float, typer.Option(min=0, max=1, help="share that is never sent")]
Restarts = Annotated[
    float, typer.Option(min=0, max=1, help="share after which the last 64 are sent again")
]
UpgradeNight = Annotated[
    int, typer.Option(min=0, help="night from which Rubin's schema is 11.1, before it 10.0")
]
Corrupt = Annotated[float, typer.Option(min=0, max=1, help=f"share that is corrupt: {FAULTS}")]
Codec = Annotated[str, typer.Option(help="of ZTF's containers: null, deflate or snappy")]
Rate = Annotated[float, typer.Option(min=0, help="alerts per second; 0: as fast as possible")]


def simulate(
    to: To = None,
    alerts: Alerts = 10_000,
    seed: Seed = 1,
    lsst_share: LsstShare = 0.5,
    objects: FieldObjects = 100,
    nights: Nights = 60,
    solar_system: SolarSystem = 0.05,
    null_cutouts: NullCutouts = 0.01,
    duplicates: Duplicates = 0.0,
    late: Late = 0.0,
    missing: Missing = 0.0,
    restarts: Restarts = 0.0,
    history: History = None,
    upgrade_night: UpgradeNight = 0,
    corrupt: Corrupt = 0.0,
    codec: Codec = "null",
    rate: Rate = 0.0,
    data: Data = None,
) -> None:
    """Make alerts of an invented sky, the same for the same options, and write them.

    Ctrl-C stops after the current alert, so that every alert is written whole.
    """
    from stampede_simulator.simulator import Fields, Mix, Simulator

    try:
        simulator = Simulator(
            seed,
            replace(
                Fields.of_history(history, objects) if history else Fields(objects, nights),
                upgrade_night=upgrade_night,
            ),
            Mix(
                lsst_share=lsst_share,
                solar_system=solar_system,
                null_cutouts=null_cutouts,
                duplicates=duplicates,
                late=late,
                missing=missing,
                restarts=restarts,
                corrupt=corrupt,
            ),
            codec=codec,
            keep_light_curves=False,
        )
    except ValueError as error:
        raise SetupError(str(error)) from error
    write_paced(simulator, alerts, to or local_kafka(data), rate)


def write_paced(simulator: Simulator, count: int, to: str, rate: float) -> None:
    """Write `count` alerts, at most `rate` per second, and print the progress.

    Raises `typer.Exit` if Ctrl-C stopped it before the last.
    """
    from stampede_simulator.write import write

    tally = SimulatedTally()
    with interruptible() as running, progress_to_stderr(count, tally) as progress:
        stream = paced(simulator.alerts(count), rate)
        written = write(takewhile(lambda _: running(), stream), to, progress)
    typer.echo(f"{tally} to {to}")
    if written < count:
        raise typer.Exit(INTERRUPTED)


def local_kafka(data: Path | None) -> str:
    """The Kafka of the running `stampede up`. Raises `SetupError` if there is none."""
    from stampede.cli.running import running

    system = running(data)
    if not system or not system.settings.kafka:
        raise SetupError("no Kafka is up here: start `stampede up`, or say where with --to")
    return kafka_target(system.settings)


def kafka_target(settings: Settings) -> str:
    """The Kafka of the settings as a target, with the topics that its sources read."""
    from stampede.config.topics import Topics
    from stampede_simulator.write import TOPICS

    read = Topics.parse(settings.topics)
    chosen = {}
    for survey, usual in TOPICS.items():
        names = (*read.names, *(family.template for family in read.families))
        own = [each for each in names if survey in each]
        chosen[survey] = usual if usual in names or not own else own[0].replace("{n}", "1")
    return f"kafka://{settings.kafka}?{urlencode(chosen, safe='{}')}"


class SimulatedTally(Tally["SimulatedAlert"]):
    """Counts of the alerts written so far, also by survey and fault."""

    def __init__(self) -> None:
        super().__init__(lambda alert: len(alert.body))
        self.counts: Counter[str] = Counter()

    def add(self, alert: SimulatedAlert) -> None:
        """Count one alert."""
        super().add(alert)
        self.counts[alert.survey] += 1
        self.counts["duplicates"] += alert.duplicate
        self.counts["corrupt"] += alert.fault is not None

    def __str__(self) -> str:
        parts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items() if number)
        return f"{super().__str__()}: {parts or 'none'}"


def paced(alerts: Iterable[SimulatedAlert], rate: float) -> Iterator[SimulatedAlert]:
    """The same alerts, at most `rate` per second; without a limit if `rate` is 0."""
    start = time.monotonic()
    for number, alert in enumerate(alerts):
        if rate:
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
        yield alert
