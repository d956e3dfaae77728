"""Logs on stderr: of functions a JSON line an event, on a terminal coloured; of commands sentences.

A command has a report of its own: only warnings and errors appear beside it, each as a sentence.
"""

import logging
import sys
from functools import cache, partial
from typing import Any

from stampede.addresses import shown
from stampede.telemetry import tracing

_wanted = False
_told: frozenset[str] | None = None  # of a command: events that its report tells anyway


def get_logger() -> Any:
    """A logger of structlog's: ``log.info("what happened", number=1)``."""
    return _Logger()


def configure_logs() -> None:
    """Write lines as above, and send the standard library's warnings to stderr too. Call it once.

    Without this structlog writes its own kind of lines on stdout.
    """
    _want(None)


def configure_command_logs(*told: str) -> None:
    """As `configure_logs`, for a command: `told` are events that its report tells anyway."""
    _want(frozenset(told))


def _want(told: frozenset[str] | None) -> None:
    global _wanted, _told
    _wanted, _told = True, told
    _configure.cache_clear()
    if not logging.root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_WithoutLogins("%(name)s: %(message)s"))
        logging.basicConfig(level=logging.WARNING, handlers=[handler])
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
    print(shown(f"{level}: {event} {fields}"), file=sys.stderr)


def _add_trace(_: object, __: str, fields: Any) -> Any:
    return tracing.log_fields(tracing.current()) | fields


def _leave_out_told(_: object, __: str, fields: Any) -> Any:
    import structlog

    if _told and fields["event"] in _told:
        raise structlog.DropEvent
    return fields


def _without_logins(_: object, __: str, fields: Any) -> Any:
    """No URL in a line has a user and a password."""
    return {
        name: shown(value) if isinstance(value, str) else value for name, value in fields.items()
    }


class _WithoutLogins(logging.Formatter):
    """The same for lines of the standard library."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def _as_sentence(_: object, __: str, fields: Any) -> str:
    """A line for the people who ran a command."""
    level, event = fields.pop("level"), fields.pop("event")
    trace = fields.pop("exception", "")
    words = (f"{name}={' '.join(str(value).split())}" for name, value in fields.items())
    told = ", ".join(words)
    line = f"stampede: {level}: {event}" + (f" ({told})" if told else "")
    return f"{line}\n{trace}" if trace else line


@cache
def _configure() -> None:
    import structlog

    level = structlog.processors.add_log_level
    if _told is not None:
        lowest = logging.WARNING
        processors: list[Any] = [
            level,
            structlog.processors.format_exc_info,
            _leave_out_told,
            _without_logins,
            _as_sentence,
        ]
    else:
        lowest, terminal = logging.INFO, sys.stderr.isatty()
        processors = [
            level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _add_trace,
            _without_logins,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        # Look up `sys.stderr` on every write; an in-process caller may replace it.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
