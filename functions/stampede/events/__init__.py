"""Events: the HTTP endpoint of a function, and what sends events to it (source, relay, broker)."""

from collections.abc import Mapping

__all__ = [
    "ALERT_FUNCTIONS",
    "BOTH_TABLES",
    "functions_of",
    "table_urls",
    "tables_of",
]

ALERT_FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}
"""The functions that take alerts, and the table that each fills."""

BOTH_TABLES = "alerts"
"""The function that takes alerts for both tables, and decodes them once."""


def functions_of(urls: Mapping[str, str]) -> list[str]:
    """Those of the functions with these URLs that take alerts for all tables together."""
    return [BOTH_TABLES] if BOTH_TABLES in urls else [*ALERT_FUNCTIONS]


def table_urls(urls: Mapping[str, str]) -> dict[str, str]:
    """The URL that takes alerts for one table alone, of each, given the functions' URLs."""
    if both := urls.get(BOTH_TABLES):
        return {table: f"{both}/{table}" for table in tables_of(BOTH_TABLES)}
    return {table: urls[name] for name, table in ALERT_FUNCTIONS.items()}


def tables_of(function: str) -> tuple[str, ...]:
    """The tables that a function fills with alerts."""
    if function == BOTH_TABLES:
        return tuple(ALERT_FUNCTIONS.values())
    return (ALERT_FUNCTIONS[function],)
