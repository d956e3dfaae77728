"""Each alert rule fires when it should, and only then, as Prometheus' own promtool evaluates it."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from rendering import CHART, ROOT, objects, rendered

# Series in promtool's notation: a value each minute; `_` is none, `0+5x9` counts up by 5.
Series = dict[str, str]
# Rules that look back for days have a value, and are evaluated, every ten minutes instead: by the
# minute, promtool took ten seconds for them.
SLOW = {"StampedeBucketNearQuota": 10, "StampedeNotPublished": 10}


class Case(NamedTuple):
    """Series at which a rule fires at some minute, and others at which it does not."""

    fires: Series
    silent: Series
    minute: int


def source(metric: str, pod: str = "one", **labels: str) -> str:
    """The name of a series of a pod."""
    labels = {"namespace": "sky", "pod": pod, **labels}
    pairs = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{pairs}}}"


EVENTS, LAG = "stampede_events_total", "stampede_source_lag_events"
READY, ACCEPTED = "stampede_source_ready", "stampede_source_events_total"
READS = "stampede_read_seconds_count"
NIGHTS = "stampede_reconcile_round_age_seconds"
EXPIRES = "stampede_certificate_expires_timestamp_seconds"
WAITED = "stampede_notifications_waited_seconds"
LACKING = "stampede_histories_lacking_detectors"
UNEXPLAINED = "stampede_histories_unexplained_detections"
FOUND = "stampede_reconcile_found_objects"
DAY = 86400


def letters(values: str) -> Series:
    """Dead letters that a pod has written."""
    return {source(EVENTS, function="deadletters", outcome="stored"): values}


def refused(*pods: str) -> Series:
    """Events that pods of a function have answered with 401."""
    return {
        source(EVENTS, pod=f"pod-{number}", function="compact", outcome="not-authorized"): values
        for number, values in enumerate(pods)
    }


def buckets(metric: str, bounds: dict[str, int], **labels: str) -> Series:
    """A histogram that counts so many observations a minute."""
    return {source(metric, le=le, **labels): f"0+{step}x60" for le, step in bounds.items()}


def quota(values: str, pod: str = "one") -> Series:
    """The part of a bucket's quota that is used."""
    return {
        source("stampede_quota_used_ratio", pod, site="store", scope="bucket", unit="size"): values
    }


def store_check(seconds: str, usual: str) -> Series:
    """A step of the hourly check of a store, and what is usual."""
    labels = {"site": "store", "step": "write", "quantile": "0.5"}
    return {
        source("stampede_store_check_seconds", **labels): seconds,
        source("stampede_store_check_usual_seconds", **labels): usual,
    }


def sources(**values: list[str]) -> Series:
    """Whether each pod of some sources is ready."""
    return {
        source(READY, pod=f"{name}-{number}", source=name.replace("_", "-")): each
        for name, pods in values.items()
        for number, each in enumerate(pods)
    }


def ages(old: bool) -> Series:
    """Ages of alerts: half of them beyond ten minutes, or none."""
    bounds = {"600": 10 if old else 100, "1800": 100, "+Inf": 100}
    return buckets("stampede_alert_age_seconds_bucket", bounds, function="cutouts")


SOURCES = {name: 2 * ["1x60"] for name in ("lsst", "ztf")}  # two pods each
KEPT = {  # functions that keep a pod
    source("process_start_time_seconds", component=name): "0x200"
    for name in ("read", "cutouts", "lightcurves", "notifications")
}
PASSES_OF_COMPACT = {source("stampede_compact_passes_total", outcome="done"): "0+1x99"}
PASSES_OF_SCRUB = {source("stampede_scrub_passes_total", site="store", outcome="done"): "0+1x99"}
CASES = {
    "StampedeAlertsNeverCame": Case(
        {source(LACKING, survey="lsst"): "1x60", source(LACKING, survey="ztf"): "0x60"},
        {source(LACKING, survey="lsst"): "0x60", source(UNEXPLAINED, survey="lsst"): "9x60"},
        5,
    ),
    "StampedeAlertsOld": Case(ages(True), ages(False), 20),
    "StampedeBucketNearQuota": Case(
        quota("0.9x60"),
        # The quota was raised: a new pod says so, and the other has ended.
        quota("0.9x2") | quota("_x3 0.5x40", "two"),
        30,
    ),
    "StampedeCertificateExpires": Case(
        {source(EXPIRES, site="store"): f"{10 * DAY}x60"},
        # The pod that saw the old certificate ended ten minutes ago.
        {
            source(EXPIRES, site="store"): f"{10 * DAY}x20",
            source(EXPIRES, pod="two", site="store"): f"_x20 {90 * DAY}x40",
        },
        30,
    ),
    "StampedeClockWrong": Case(
        {source("stampede_clock_difference_seconds", site="first"): "-700x60"},
        {source("stampede_clock_difference_seconds", site="first"): "20x60"},
        5,
    ),
    "StampedeDamaged": Case(
        {source("stampede_damaged_parts", table="cutouts"): "1x60"},
        {source("stampede_damaged_parts", table="cutouts"): "0x60"},
        5,
    ),
    "StampedeDeadLetters": Case(letters("3x10"), letters("3x60"), 5),
    "StampedeEventStuck": Case(
        {source("stampede_source_stuck_events", sink="sink"): "1x60"},
        {source("stampede_source_stuck_events", sink="sink"): "1x5 0x60"},
        15,
    ),
    "StampedeFallsBehind": Case(
        {source(LAG, family="a", partition="0"): "1000000x90"},
        {source(LAG, family="a", partition="0"): "1000000-10000x90"},
        45,
    ),
    "StampedeFunctionDown": Case(
        {
            source("stampede_source_in_flight_events"): "300x60",
            source(ACCEPTED, outcome="accepted"): "700x60",
        },
        {
            source("stampede_source_in_flight_events"): "300x60",
            source(ACCEPTED, outcome="accepted"): "700+1x60",
        },
        30,
    ),
    "StampedeFunctionGone": Case(dict([*KEPT.items()][1:]), KEPT, 30),
    "StampedeNightsWait": Case({source(NIGHTS): f"{61 * DAY}x9"}, {source(NIGHTS): "0x9"}, 5),
    "StampedeNoBucketNotifications": Case(
        {source(EVENTS, function="notifications", outcome="broker-down"): "0+9x60"},
        {source(EVENTS, function="notifications", outcome="stored"): "0+9x60"},
        30,
    ),
    "StampedeNotificationsOff": Case(
        {source(WAITED): "960x60", source("stampede_notifications_off"): "1x60"},
        {source(WAITED): "960x60", source("stampede_notifications_off"): "0x60"},
        30,
    ),
    "StampedeNotCompacted": Case(
        {source("stampede_runs", table="cutouts", level="0"): "300x99"},
        {source("stampede_runs", table="cutouts", level="0"): "20x99"} | PASSES_OF_COMPACT,
        60,
    ),
    "StampedeNotPublished": Case(
        {source("stampede_publish_passes_total", outcome="store-down"): "0+1x170"},
        {source("stampede_publish_passes_total", outcome="done"): "1x143 2x143 3x30"},
        3150,
    ),
    "StampedeNotReconciled": Case(
        {source("stampede_reconcile_passes_total", outcome="failed"): "0+1x200"},
        {source("stampede_reconcile_passes_total", outcome="done"): "0+1x200"},
        150,
    ),
    "StampedeNotScrubbed": Case(
        {
            source("stampede_scrub_round_age_seconds", site="store"): f"{20 * DAY}x60",
            source("stampede_scrub_interval_seconds"): f"{7 * DAY}x60",
        }
        | PASSES_OF_SCRUB,
        {
            source("stampede_scrub_round_age_seconds", site="store"): f"{6 * DAY}x60",
            source("stampede_scrub_interval_seconds"): f"{7 * DAY}x60",
        }
        | PASSES_OF_SCRUB,
        5,
    ),
    "StampedeOverloaded": Case(
        {source(EVENTS, function="cutouts", outcome="overloaded"): "0+600x60"},
        {source(EVENTS, function="cutouts", outcome="overloaded"): "0+6x60"},
        40,
    ),
    "StampedeReadFails": Case(
        {
            source(READS, route="get_cutout", status="502"): "0+9x60",
            source(READS, route="get_cutout", status="200"): "0+99x60",
        },
        {
            source(READS, route="get_cutout", status="404"): "0+9x60",
            source(READS, route="not_held", status="501"): "0+9x60",
            source(READS, route="get_cutout", status="200"): "0+99x60",
        },
        30,
    ),
    "StampedeReadSlow": Case(
        buckets("stampede_read_seconds_bucket", {"1": 9, "5": 99, "+Inf": 99}, route="get_cutout"),
        buckets("stampede_read_seconds_bucket", {"1": 9, "5": 99, "+Inf": 99}, route="post_many"),
        40,
    ),
    "StampedeSecondSiteBehind": Case(
        {source(FOUND, what="not-replicated"): "5x120"},
        {source(FOUND, what="not-replicated"): "5x60 0 5x60"},
        100,
    ),
    "StampedeSendersRefused": Case(
        # Each tick of a timer starts a pod, which refuses it and ends.
        refused("_x2 1x2", "_x12 1x2", "_x22 1x2"),
        # Two strangers lately, and some long ago, in a pod that stays.
        refused("_x80 1x20", "_x90 1x10", "5x120"),
        25,
    ),
    "StampedeSourceDown": Case(
        # More pods of others do not make up for the one that is not ready.
        sources(**SOURCES | {"lsst": 4 * ["1x60"], "ztf": ["1x20 0x40"]}),
        sources(**SOURCES),
        40,
    ),
    "StampedeStoreDown": Case(
        {source(EVENTS, function="cutouts", outcome="store-down"): "0+9x60"},
        {source(EVENTS, function="cutouts", outcome="stored"): "0+9x60"},
        20,
    ),
    "StampedeStoreSlow": Case(
        store_check("0.3x300", "0.09x300"),
        # One slow check, an hour long; usually slow; and too fast to matter are silent.
        store_check("0.02x10 0.3x60 0.02x60", "0.09x300"),
        95,
    ),
    "StampedeTableLeftBehind": Case(
        {source("stampede_source_detached_partitions", table="cutouts"): "4x60"},
        {source("stampede_source_detached_partitions", table="cutouts"): "4x5 0x60"},
        15,
    ),
    "StampedeTopicMadeAnew": Case(
        {source("stampede_source_topics_made_anew_total", family="lsst-alerts"): "0x10 1x90"},
        {source("stampede_source_topics_made_anew_total", family="lsst-alerts"): "0x100"},
        13,
    ),
    "StampedeTopicSilent": Case(
        {source("stampede_source_silent_families", family="ztf_{YYYYMMDD}_programid1"): "1x60"},
        {source("stampede_source_silent_families", family="ztf_{YYYYMMDD}_programid1"): "1x3 0x60"},
        6,
    ),
    "StampedeTopicUnread": Case(
        {source("stampede_source_unread_topics", family="lsst-alerts-v{n}"): "1x60"},
        {source("stampede_source_unread_topics", family="lsst-alerts-v{n}"): "1x3 0x60"},
        6,
    ),
    "StampedeWorkersDie": Case(
        {source("stampede_worker_deaths_total", function="cutouts"): "0+1x90"},
        {source("stampede_worker_deaths_total", function="cutouts"): "0x30 1x60"},
        60,
    ),
}
# Another way to fire: what should report is gone.
GONE = {
    "StampedeFunctionGone": 10,
    "StampedeNotCompacted": 120,
    "StampedeNotReconciled": 180,
    "StampedeNotScrubbed": 180,
    "StampedeSourceDown": 10,
}
# What else counts as damage; what the second site lacks as yet does not.
DAMAGE = {
    source(FOUND, what="lost"): True,
    source(FOUND, what="damaged"): True,
    source("stampede_quarantined_objects", table="cutouts"): True,
    source("stampede_scrub_damaged_objects", site="replica"): True,
    source(FOUND, what="not-replicated"): False,
}
# Yet another: the sink for dead letters answers 404, or nothing.
NO_LETTERS = source("stampede_source_retries_total", sink="dead letters", status="404")
# A pod that lives long made one pass, and fails since: the minute at which the rule fires.
FAILS = {
    "StampedeNotCompacted": ("stampede_compact_passes_total", 120),
    "StampedeNotPublished": ("stampede_publish_passes_total", 3200),
    "StampedeNotReconciled": ("stampede_reconcile_passes_total", 150),
    "StampedeNotScrubbed": ("stampede_scrub_passes_total", 150),
}
# What such a pod shows of its last pass, which was good.
LAST_PASS = {
    "StampedeNotCompacted": {source("stampede_runs", table="cutouts", level="0"): "20x200"},
    "StampedeNotScrubbed": {source("stampede_scrub_round_age_seconds", site="store"): "60x200"},
}


@cache
def promtool() -> str:
    """Path of promtool, taken out of Debian's package if missing."""
    done = subprocess.run(
        [ROOT / "tools" / "prometheus", "promtool"], stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, "promtool cannot be had: see above"
    return done.stdout.strip()


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run([promtool(), *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def step(alert: str) -> int:
    """Minutes between two values of a rule's series, and between two evaluations of the rule."""
    return SLOW.get(alert, 1)


def firing(alert: str, series: Series, minute: int, expected: bool) -> dict[str, Any]:
    """A test in promtool's form: whether an alert fires at a minute."""
    query = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}} == 1) > bool 0 or vector(0)'
    return {
        "interval": f"{step(alert)}m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": int(expected)}],
            }
        ],
    }


# Quotas that fill at some pace, and whether the rule that looks ahead fires.
WEEK = 7 * 24 * 6  # in steps of ten minutes
AHEAD = {
    "full within a week": (quota(f"0.55+{0.4 / WEEK * 1.5:.9f}x300"), True),
    "not within a week": (quota(f"0.55+{0.4 / WEEK * 0.5:.9f}x300"), False),
    "still half empty": (quota(f"0.1+{0.4 / 300:.9f}x300"), False),
    "five hours' growth, no trend": (quota("_x270 0.55+0.01x30"), False),
}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A folder with the rules that the chart makes."""
    (made,) = objects("full", "PrometheusRule").values()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(made["spec"]))
    return tmp_path


def test_promtool_accepts_the_rules(rules: Path) -> None:
    run(rules, "check", "rules", "rules.yaml")


def test_each_rule_has_a_case() -> None:
    assert set(CASES) == {path.stem for path in (CHART / "files" / "alerts").glob("*.yaml")}


def test_rules_fire_when_they_should_and_only_then(rules: Path) -> None:
    evaluate(rules, {alert: list(cases_of(alert, case)) for alert, case in CASES.items()})


def test_the_rule_of_quotas_looks_a_week_ahead(rules: Path) -> None:
    name = "StampedeBucketNearQuota"
    evaluate(rules, {name: [firing(name, series, 2990, fires) for series, fires in AHEAD.values()]})


def cases_of(alert: str, case: Case) -> Iterator[dict[str, Any]]:
    """Tests of one rule: it fires, it is silent, and what it does without any series."""
    yield firing(alert, case.fires, case.minute, True)
    # Long after it was written, or refused.
    silent = {"StampedeDeadLetters": 30, "StampedeSendersRefused": 100}.get(alert, case.minute)
    yield firing(alert, case.silent, silent, False)
    yield firing(alert, {}, GONE.get(alert, 180), alert in GONE)
    if alert == "StampedeDamaged":
        for name, fires in DAMAGE.items():
            yield firing(alert, {name: "0x9 1x20"}, 20, fires)
    if alert == "StampedeEventStuck":
        yield firing(alert, {NO_LETTERS: "0+12x20"}, 20, True)
        yield firing(alert, {NO_LETTERS: "0+12x5 60x20"}, 20, False)
    if alert in FAILS:
        metric, minute = FAILS[alert]
        steps = minute // step(alert)
        values = {"done": f"1x{steps}", "store-down": f"0+1x{steps}"}
        series = {source(metric, outcome=outcome): each for outcome, each in values.items()}
        yield firing(alert, series | LAST_PASS.get(alert, {}), minute, True)
        pods = (10, 60, 100, 150, 200)  # that live for two minutes at most
        brief = {at: f"_x{at // step(alert)} 1x{2 // step(alert)}" for at in pods}
        new = {source(metric, pod=f"pod-{at}", outcome="done"): brief[at] for at in brief}
        yield firing(alert, new, 210, False)


def evaluate(folder: Path, tests: dict[str, list[dict[str, Any]]]) -> None:
    """Run the tests of each alert with its own rules: promtool evaluates all it is given."""
    (group,) = yaml.safe_load((folder / "rules.yaml").read_text())["groups"]
    files = []
    for alert, its_tests in tests.items():
        its_rules = [rule for rule in group["rules"] if rule["alert"] == alert]
        rule_file = folder / f"{alert}.rules.yaml"
        rule_file.write_text(yaml.safe_dump({"groups": [group | {"rules": its_rules}]}))
        files.append(f"{alert}.yaml")
        (folder / files[-1]).write_text(
            yaml.safe_dump(
                {
                    "rule_files": [rule_file.name],
                    "evaluation_interval": f"{step(alert)}m",
                    "tests": its_tests,
                }
            )
        )
    run(folder, "test", "rules", *files)


def test_a_site_that_only_reads_fires_nothing(tmp_path: Path) -> None:
    """Without sources and without the functions that write, no metric of theirs is missing."""
    names = ("cutouts", "lightcurves", "compact", "reconcile", "scrub", "publish", "thumbnails")
    off = [f"functions.{name}.enabled=false" for name in names]
    none = ["sources.lsst=null", "sources.ztf=null", "ledger.source="]
    made = rendered("full", "--set", ",".join(none + off))
    (only,) = (each for each in made if each["kind"] == "PrometheusRule")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(only["spec"]))
    evaluate(tmp_path, {alert: [firing(alert, KEPT, 180, False)] for alert in CASES})


def test_the_dashboard_adds_up_the_age_until_an_alert_is_readable(tmp_path: Path) -> None:
    """Of both functions, though the age of a listing has no function."""
    board = json.loads((CHART / "files" / "dashboards" / "stampede.json").read_text())
    (panel,) = (each for each in board["panels"] if each["title"].startswith("Age of alerts"))
    query = panel["targets"][-1]["expr"].replace("$namespace", "sky")
    age, view = "stampede_alert_age_seconds_bucket", "stampede_read_view_age_seconds_bucket"
    series = {}
    for function in ("cutouts", "lightcurves"):
        series |= buckets(age, {"0": 0, "10": 100, "+Inf": 100}, function=function)
    series |= buckets(view, {"0": 0, "2": 100, "+Inf": 100}, table="cutouts")
    expected = [
        {"labels": f'{{function="{function}"}}', "value": 0.98 * 10 + 0.98 * 2}
        for function in ("cutouts", "lightcurves")
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": each} for name, each in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "20m", "exp_samples": expected}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"tests": [test]}))
    run(tmp_path, "test", "rules", "test.yaml")
