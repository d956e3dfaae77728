"""Every panel of the dashboard shows data of a real Prometheus, after load with faults."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.commands import BackgroundCommand, until
from e2e.http import get, get_json
from e2e.places import ROOT
from e2e.prometheus import Prometheus, prometheus, targets
from e2e.stampede_up import StampedeUp
from stampede.cli.running import running
from stampede.store import store_checks
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.store_checks import ENOUGH, SITES, StoreChecks

pytestmark = pytest.mark.timeout(900)

DASHBOARD = ROOT / "charts" / "stampede" / "files" / "dashboards" / "stampede.json"
NAMESPACE = "stampede"
SEED, COUNT, RATE = 83, 400, 20
SECONDS = 180  # timeout; some metrics change with the next pass of `reconcile`


def panels(value: object) -> Iterator[tuple[str, str]]:
    """Title and query of each target of each panel."""
    if isinstance(value, list):
        for each in value:
            yield from panels(each)
    elif isinstance(value, dict):
        for target in value.get("targets", ()):
            yield value["title"], target["expr"].replace("$namespace", NAMESPACE)
        yield from panels(value.get("panels"))


def configuration(urls: dict[str, str]) -> dict:
    """Prometheus' configuration."""
    scraped = targets(urls, NAMESPACE)
    return {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "stampede", "static_configs": scraped}],
    }


def add_day_of_checks(home: Objects, site: str) -> None:
    """What is usual is known after a day of hourly checks: have the first one that often."""
    until(lambda: store_checks.load(home, site).last, SECONDS)
    last = store_checks.load(home, site).last
    assert last is not None
    store_checks.add(home, site, StoreChecks((last,) * ENOUGH), last)


def has_data(source: Prometheus, query: str) -> bool:
    """Whether a query gives a number. What stands in for missing data does not count."""
    found = source.query(query.removesuffix(" or vector(0)"))
    return any(each["value"][1] != "NaN" for each in found)


@pytest.mark.nightly
def test_every_panel_shows_data(tmp_path: Path) -> None:
    queries = list(panels(json.loads(DASHBOARD.read_text())))
    assert len(queries) > 25
    options = ("--second-site", "--sources")  # as on a cluster
    with StampedeUp(tmp_path / "data", *options, STAMPEDE_GRACE_SECONDS="5") as up:
        system = running(up.data)
        assert system is not None
        with prometheus(tmp_path / "prometheus", configuration(system.urls)) as source:
            simulate = BackgroundCommand(
                tmp_path / "simulate.log",
                *("simulate", "--to", f"kafka://{up.kafka}", "--alerts", COUNT, "--seed", SEED),
                *("--corrupt", 0.02, "--rate", RATE),
            )
            with simulate:
                simulate.wait_for(f"[0-9] of {COUNT:,} alerts")
                up.processes("cutouts")[0].kill()  # a source sends its events once more
                simulate.result(simulate.child.wait(120)).assert_succeeded()
            up.wait_until_stored()
            for site in SITES:
                add_day_of_checks(open_objects(system.settings), site)
            empty = list(queries)

            def complete() -> bool:
                (latest,) = get_json(f"{up.url}/v1/alerts?limit=1")["alerts"]
                get(f"{up.url}/v1/alerts/{latest['alert_id']}/packet")
                empty[:] = [each for each in empty if not has_data(source, each[1])]
                return not empty

            try:
                until(complete, SECONDS, 1)
            except AssertionError:
                raise AssertionError(f"panels without data: {empty}") from None
        up.stop().assert_succeeded()
