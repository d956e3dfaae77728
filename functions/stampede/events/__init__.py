"""Events: the HTTP endpoint of a function, and what sends events to it (source, relay, broker)."""

from collections.abc import Mapping

__all__ = [
    "ALERT_FUNCTIONS",
    "BOTH_TABLES",
    "functions_of",
    "tables_of",
]

ALERT_FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}
"""The functions that take alerts, and the table that each fills."""

BOTH_TABLES = "alerts"
"""The function that takes alerts for both tables, and decodes them once."""


def functions_of(urls: Mapping[str, str]) -> list[str]:
    """Those of the functions with these URLs that take alerts for all tables together."""
    return [BOTH_TABLES] if BOTH_TABLES in urls else [*ALERT_FUNCTIONS]


def tables_of(function: str) -> tuple[str, ...]:
    """The tables that a function fills with alerts."""
    if function == BOTH_TABLES:
        return tuple(ALERT_FUNCTIONS.values())
    return (ALERT_FUNCTIONS[function],)
