"""Logs: one JSON line per event on stderr, or coloured text on a terminal."""

import logging
import sys


def configure_logs() -> None:
    """Set up structlog, and send the standard library's warnings to stderr too. Call it once."""
    import structlog  # here: `stampede --help` does without it

    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Look up `sys.stderr` on every write; an in-process caller may replace it.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    # If the store is down, its caller logs that once; urllib3 would log it for each connection.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
