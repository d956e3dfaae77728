"""Logs: one JSON line per event on stderr, or coloured text on a terminal."""

import logging
import sys
from functools import cache, partial
from typing import Any

from stampede.telemetry import tracing

_wanted = False


def get_logger() -> Any:
    """A logger of structlog's: ``log.info("what happened", number=1)``."""
    return _Logger()


def configure_logs() -> None:
    """Write lines as above, and send the standard library's warnings to stderr too. Call it once.

    Without this structlog writes its own kind of lines on stdout.
    """
    global _wanted
    _wanted = True
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    # If the store is down, its caller logs that once; urllib3 would log it for each connection.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


class _Logger:
    """Imports structlog when it writes its first line: 10 % of the start of a process."""

    def __getattr__(self, name: str) -> Any:
        try:
            import structlog

            if _wanted:
                _configure()
        except (ImportError, OSError):  # no descriptor is free, or the interpreter ends
            return partial(_write_plainly, name)
        return getattr(structlog.get_logger(), name)


def _write_plainly(level: str, event: str, **fields: object) -> None:
    print(f"{level}: {event} {fields}", file=sys.stderr)


def _add_trace(_: object, __: str, fields: Any) -> Any:
    return tracing.log_fields(tracing.current()) | fields


@cache
def _configure() -> None:
    import structlog

    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _add_trace,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Look up `sys.stderr` on every write; an in-process caller may replace it.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
