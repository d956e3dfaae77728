"""Logs: one JSON line per event on stderr, or coloured text where a person reads it."""

import logging
import sys

import structlog


def configure_logs() -> None:
    """Set up structlog and send the standard library's warnings the same way. Called once."""
    person = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if person else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # As it is when a line is written: who calls a command within a process may take it away.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    # A store that is away is told by who asks it, once, not by each of its connections.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
