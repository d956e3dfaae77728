"""`stampede audit`: prove that nothing is missing, or name what is missing."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from stampede.cli.options import Data, parse_topics, results_console
from stampede.cli.reports.ledger_report import report, status_of
from stampede.errors import SetupError, StoreDown

if TYPE_CHECKING:
    from rich.console import Console

    from stampede.config.settings import Settings
    from stampede.config.topics import Topics
    from stampede.handlers.audit.audit import MissingObjects
    from stampede.store.integrity.ledger import Entry


class ReplicaLedger(NamedTuple):
    """The ledger of the second site, the objects that it lacks, and what limits both."""

    entries: list[Entry]
    missing: list[MissingObjects]
    warnings: list[str]


class AuditedStore(StrEnum):
    """The store to audit."""

    STORE = "store"
    REPLICA = "replica"
    BOTH = "both"


Repair = Annotated[
    bool,
    typer.Option(
        "--repair", help="only with --deep: restore from the other site, and draw thumbnails again"
    ),
]
Histories = Annotated[
    bool, typer.Option("--histories", help="name what histories have and no alert brought")
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document instead of tables")]


def audit(
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="topics, or families; without any, all that the store knows"),
    ] = None,
    site: Annotated[
        AuditedStore,
        typer.Option(help="the store itself, or the second site; both only with --deep"),
    ] = AuditedStore.STORE,
    deep: Annotated[
        bool, typer.Option("--deep", help="read every object, and check every reference")
    ] = False,
    repair: Repair = False,
    histories: Histories = False,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Prove that every offset of a topic is stored or dead-lettered, in both tables.

    If anything is missing or not what Kafka has, it is named and the exit status is 1. What Kafka
    has received and the source has not delivered yet is in flight, and not missing. Reads the
    `stampede up` that is running, or what STAMPEDE_STORE, STAMPEDE_REPLICA and STAMPEDE_KAFKA name.

    With `--deep` every object is read to its end instead: each against its name and checksums, each
    row that locates an image against the pack. With `--repair` what is damaged or lost at one site
    is restored from the other. The exit status is 1 if anything is left.

    With `--histories` Kafka is not asked: each detection in the history of an alert should have
    come as an alert of its own. Those that did not are named by night, visit and detector, with
    their likely cause. The exit status is 1 if any is unexplained.

    With `--json` the same is one JSON document, with the same exit status.
    """
    from stampede.cli.running import running, settings_of
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()  # to stderr: stdout has the results alone
    system = running(data)
    settings = settings_of(system)
    if histories:
        sys.exit(_histories(settings, site, as_json, not (topics or deep or repair)))
    if deep:
        names = ["store", "replica"] if site is AuditedStore.BOTH else [site.value]
        sys.exit(_deep(settings, site, names, repair, as_json))
    if repair or site is AuditedStore.BOTH:
        raise SetupError("`--repair` and `--site both` need `--deep`")
    everything = not topics
    chosen = parse_topics(",".join(topics or ([settings.topics] if system else [])))
    if site is AuditedStore.REPLICA:
        sys.exit(_audit_replica(settings, chosen, everything, as_json))
    sys.exit(_audit_store(settings, chosen, everything, as_json))


def _deep(
    settings: Settings, site: AuditedStore, names: list[str], repair: bool, as_json: bool
) -> int:
    """Read everything and print what is wrong and what was mended; return the exit status."""
    from stampede.cli.reports.audit_json import deep_json
    from stampede.cli.reports.object_reports import report_deep, show_progress
    from stampede.handlers.scrub.deep_audit import deep_audit

    result = deep_audit(settings, names, repair, show_progress)
    if as_json:
        print(deep_json(site.value, result))
    else:
        report_deep(result, results_console(), settings.orphan_days)
    return 1 if result.left else 0


def _histories(settings: Settings, site: AuditedStore, as_json: bool, alone: bool) -> int:
    """Print which detections never came as an alert; return the exit status.

    `alone` is whether no option was given that it does not go with.
    """
    from stampede.cli.reports.audit_json import histories_json
    from stampede.cli.reports.ledger_report import HistoriesReport, report_histories
    from stampede.handlers.histories.audit import HistoriesAudit
    from stampede.store.open import open_objects
    from stampede.store.programmes.rights import Rights

    if not alone or site is AuditedStore.BOTH:
        raise SetupError("`--histories` is of one store, and takes no topics or `--deep`")
    settings = settings.of_second_site() if site is AuditedStore.REPLICA else settings
    made = HistoriesAudit(open_objects(settings), Rights.of(settings))
    try:
        found = HistoriesReport.of(made.groups(), explained=as_json)
    finally:
        made.close()
    if as_json:
        print(histories_json(site.value, found))
    else:
        report_histories(found, results_console())
    return 1 if found.unexplained else 0


def _audit_store(settings: Settings, topics: Topics, everything: bool, as_json: bool) -> int:
    """Print the ledger, and objects in quarantine or lost; return the exit status."""
    from stampede.cli.reports.audit_json import audit_json
    from stampede.cli.reports.object_reports import find_objects, report_objects

    entries = entries_of(settings, topics, everything, compare=True)
    found = find_objects(settings)
    status = max(status_of(entries), 1 if found.faults else 0)
    if as_json:
        print(audit_json("store", status, entries, topics, found))
    else:
        report(entries, console := results_console())
        report_objects(found, console)
    return status


def _audit_replica(settings: Settings, topics: Topics, everything: bool, as_json: bool) -> int:
    """Print the ledger of the second site and the objects it lacks; return the exit status."""
    from stampede.cli.reports.audit_json import audit_json

    ledger = compare_sites(settings, topics, everything)
    status = max(status_of(ledger.entries), 1 if ledger.missing else 0)
    if as_json:
        print(
            audit_json(
                "replica", status, ledger.entries, topics, None, ledger.missing, ledger.warnings
            )
        )
    else:
        report_replica(ledger, results_console())
    return status


def compare_sites(settings: Settings, topics: Topics, everything: bool) -> ReplicaLedger:
    """Compare the second site with the first, or with Kafka alone if the first one is down."""
    from stampede.handlers.audit.alert_check import alert_check
    from stampede.handlers.audit.audit import audit as audit_topics
    from stampede.handlers.audit.audit import missing_by_kind
    from stampede.handlers.replicate import make_replica

    missing: list[MissingObjects] = []
    warnings: list[str] = []
    replica = make_replica(settings)
    first, second = replica.source, replica.target
    try:
        with alert_check(settings.of_second_site()) as check:
            try:
                # Read the ledger of the second site last: what was copied meanwhile is not missing.
                missing = missing_by_kind(replica.missing())
                entries = audit_topics(first, settings, topics, everything, second, check)
            except StoreDown as error:
                # This raises an error if the second site is down too.
                entries = audit_topics(second, settings, topics, everything, None, check)
                warnings = [
                    "the first site does not answer; the second proves by itself: " + error.message
                ]
    finally:
        replica.close()
    return ReplicaLedger(entries, missing, warnings)


def report_replica(ledger: ReplicaLedger, console: Console) -> None:
    """Print the ledger of the second site, and which objects it lacks."""
    for warning in ledger.warnings:
        console.print(warning, style="yellow", highlight=False, soft_wrap=True)
    report(ledger.entries, console, ends=True)
    for each in ledger.missing:
        more = ", …" if each.objects > len(each.examples) else ""
        console.print(
            f"not there yet: {each.objects:,} of {each.kind}/, {each.bytes / 1e6:,.1f} MB: "
            f"{', '.join(each.examples)}{more}",
            style="bold red",
            highlight=False,
            soft_wrap=True,
        )


def entries_of(
    settings: Settings, topics: Topics, everything: bool = False, compare: bool = False
) -> list[Entry]:
    """The ledger's entries for these topics; with `everything` for all that the store knows.

    With `compare` samples of what Kafka has are compared with the store, alert by alert.
    """
    from stampede.handlers.audit.alert_check import alert_check
    from stampede.handlers.audit.audit import audit as audit_topics
    from stampede.store.open import open_objects

    with alert_check(settings) as check:
        return audit_topics(
            open_objects(settings), settings, topics, everything, None, check if compare else None
        )
