"""What must be true after a campaign: nothing is lost, wrong, or there twice, at both sites."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from e2e.commands import run, until
from e2e.faults import short_lived
from e2e.faults.alerts import Sent
from e2e.faults.kafka import TOPIC, Kafka
from e2e.stampede_up import SecondSiteRead, StampedeUp, stored_counts
from stampede.config.settings import Settings
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import THUMBNAILS
from stampede.store.tables.table import Table
from stampede_local.cli import TOPICS
from stampede_simulator.simulator import Simulator
from tests.support.store import stored_alerts

STORED_SECONDS = 900.0


def check(
    up: StampedeUp,
    sent: Sent,
    simulator: Simulator,
    kafka: Kafka,
    direct: Settings,
    say: Callable[[str], None],
) -> None:
    """Wait until all is stored and mended, then compare. Raises `AssertionError`.

    Parameters
    ----------
    direct
        Settings with the addresses of the stores, not of the proxies.
    say
        Called with a line at every step.
    """
    until(lambda: _mended(up.data), STORED_SECONDS, 2)
    say("reconcile --all finds nothing more")
    counts = stored_counts(up.wait_until_stored(*TOPICS, seconds=STORED_SECONDS))
    for table, (received, stored, dead) in counts.items():
        assert stored + dead == received, table
    up.wait_until_stored(*TOPICS, "--site", "replica", seconds=STORED_SECONDS)
    say("audit finds nothing missing")
    both = ("--deep", "--site", "both", "--data", up.data)
    run("audit", *both, seconds=STORED_SECONDS).assert_succeeded()
    say("audit --deep of both sites finds nothing")
    objects = open_objects(direct), open_replica(direct)
    tables = [Table(site, THUMBNAILS) for site in objects]
    ids = sorted(sent.ids)
    until(
        lambda: all(sent.with_images <= _drawn(table, ids) for table in tables),
        STORED_SECONDS,
        2,
    )
    for site, (table, refused) in product(objects, sent.refused.items()):
        letters = {letter.data for letter in stored_alerts.letters(site, table).values()}
        assert letters == refused, f"{table}: {len(letters)} dead letters, not {len(refused)}"
    say(f"{sent.undecodable} messages that cannot be decoded are dead letters")
    until(lambda: "in flight" not in up.audit(TOPIC).output, STORED_SECONDS, 2)
    with SecondSiteRead(up.data.parent / "second.log", direct) as read:
        for url in (up.url, read.url):
            say(f"{url}: {sent.compare(url, simulator)}")
            if kafka.sent:
                say(f"{TOPIC}: {short_lived.compare(up.audit(TOPIC), url, kafka)}")
        read.stop().assert_succeeded()


def _drawn(table: Table, ids: Sequence[int]) -> set[tuple[str, int]]:
    table.refresh()
    rows = table.lookup(ids).to_pylist()
    return {(row["survey"], row["alert_id"]) for row in rows}


def _mended(data: Path) -> bool:
    """Whether a pass over everything finds nothing to mend."""
    return run("reconcile", "--all", "--data", data, seconds=STORED_SECONDS).status == 0
