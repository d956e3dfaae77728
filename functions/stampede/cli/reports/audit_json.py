"""`stampede audit --json`: docs/how-to/audit-in-a-program.md describes every field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stampede.cli.reports.ledger_report import HistoriesReport
    from stampede.cli.reports.object_reports import ObjectReport
    from stampede.config.topics import Topics
    from stampede.handlers.audit.audit import MissingObjects
    from stampede.handlers.scrub.deep_audit import Result
    from stampede.store.integrity.ledger import Entry


def audit_json(
    site: str,
    status: int,
    entries: Sequence[Entry],
    topics: Topics,
    report: ObjectReport | None = None,
    missing: Sequence[MissingObjects] = (),
    warnings: Sequence[str] = (),
) -> str:
    """The ledger of a site, the objects found damaged or lost, and what the second site lacks."""
    from stampede.store.integrity.ledger_json import entry_json

    return _document(
        {
            "site": site,
            "complete": status == 0,
            "ledger": [entry_json(entry, topics) for entry in entries],
            "objects": [fault._asdict() | {"mended": False} for fault in report.faults]
            if report
            else [],
            "packs_checked": [checked._asdict() for checked in report.checked] if report else [],
            "not_replicated": [each._asdict() for each in missing],
            "warnings": list(warnings),
        }
    )


def deep_json(site: str, result: Result) -> str:
    """What `--deep` read, and each object that is or was not as it should be."""
    left = {fault[:2] for fault in result.left}
    return _document(
        {
            "site": site,
            "complete": not left,
            "read": {name: totals._asdict() for name, totals in result.totals.items()},
            "objects": [
                fault._asdict() | {"mended": fault[:2] not in left}
                for fault in sorted({*result.faults, *result.left})
            ],
            "in_flight": result.in_flight,
        }
    )


def histories_json(site: str, found: HistoriesReport) -> str:
    """What histories have and what never came as an alert of its own."""
    return _document(
        {
            "site": site,
            "complete": not found.unexplained,
            "histories": [
                {"survey": survey, "cause": cause, "detections": count}
                for (survey, cause), count in sorted(found.totals.items())
            ],
            "groups": [group._asdict() | {"ids": [*map(str, group.ids)]} for group in found.groups],
        }
    )


def _document(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=2)
