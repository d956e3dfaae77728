"""Probes of a store: what `reconcile` writes to see whether notifications come, and how fast it is.

``probes/sent/<milliseconds>`` is stored and deleted at once: its notification is the probe. Three
objects hold milliseconds since 1970-01-01 UTC, by the clock of the store: ``probes/received`` of
the last probe that came, ``probes/asked`` of the first and the last that did not come yet,
``probes/seen`` those when a topic was first seen that does not say when it was made.
``probes/timed/<run>/<size>-<number>`` are objects whose writing, reading, listing and deleting is
timed (`step_times`).
"""

import re
from datetime import UTC, datetime, timedelta

from stampede.errors import NotFound
from stampede.store.objects.object_store import Objects

PROBES = "probes/"
SENT = f"{PROBES}sent/"
TIMED = f"{PROBES}timed/"
RECEIVED, ASKED, SEEN = (f"{PROBES}{name}" for name in ("received", "asked", "seen"))
_TIMED = rf"{TIMED}[0-9a-f]{{32}}/[0-9]{{1,9}}-[0-9]{{3}}"
_KEY = re.compile(rf"{SENT}[0-9]{{1,15}}|{_TIMED}|{RECEIVED}|{ASKED}|{SEEN}")
_MOMENTS = re.compile(rb"[0-9]{1,15}( [0-9]{1,15})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_probe(key: str) -> bool:
    """Whether a key is one of these."""
    return _KEY.fullmatch(key) is not None


def sent_probe(moment: datetime) -> str:
    """The key of the probe of that moment."""
    return f"{SENT}{_milliseconds(moment)}"


def receive(objects: Objects, key: str) -> None:
    """Write down that a probe came. Raises `StoreDown`."""
    objects.put(RECEIVED, key.removeprefix(SENT).encode())


def write_moments(objects: Objects, key: str, *moments: datetime) -> None:
    """Write one or two moments to one of the three objects. Raises `StoreDown`."""
    objects.put(key, " ".join(str(_milliseconds(moment)) for moment in moments).encode())


def moments_of(objects: Objects, key: str) -> list[datetime]:
    """The moments in one of the three objects; none if it is not there. Raises `StoreDown`."""
    try:
        text = objects.get(key)
    except NotFound:
        return []
    if not _MOMENTS.fullmatch(text):
        return []  # somebody else's bytes say nothing
    return [_EPOCH + timedelta(milliseconds=int(number)) for number in text.split()]


def _milliseconds(moment: datetime) -> int:
    return round((moment - _EPOCH) / timedelta(milliseconds=1))
