"""The attributes of events whose headers are plain, as nearly all are, without the SDK's work.

The CloudEvents SDK takes 15 of the 21 us that parsing an event took (docs/adr/0030). What it says
of an event depends on the names of the headers, which are the same for a whole topic, and on
values only if one is empty, has an escape, or is another version. So the names are shown to it
once, and what is not plain always.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from stampede.events.cloudevents.attributes import NAME_LENGTH, SHORT_LENGTH, check_meaning

MOST_HEADERS = 32
KEPT = 128  # combinations of names; at most 1 MB
_PLAIN = re.compile("[ -$&-~]+")  # printable ASCII, and no escape
_VERSION, _PROBE = "1.0", "1"  # the latter is valid for every attribute but version and time


class PlainAttributes:
    """Finds the attributes in plain headers.

    Parameters
    ----------
    parse
        Returns the attributes in any headers, the time among them; raises if they are wrong.
    check_time
        Raises `ValueError` if a text is not a time that an event may have.
    """

    def __init__(
        self, parse: Callable[[dict[str, str]], dict[str, str]], check_time: Callable[[str], None]
    ) -> None:
        self._parse = parse
        self._check_time = check_time
        self._names = lru_cache(KEPT)(self._find_names)  # keeps no names that raise

    def find(self, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str] | None:
        """The attributes; None if the headers are not plain, or wrong: then `parse` must judge."""
        headers = list(headers)
        given = tuple([name for name, _ in headers])
        if b"ce-id" not in given or len(given) > MOST_HEADERS:
            return None
        try:
            names = self._names(given)
            texts = {
                name: value.decode("latin-1")
                for name, (_, value) in zip(names, headers, strict=True)
                if name
            }
            joined = "".join(texts.values())
            if not (_PLAIN.fullmatch(joined) and len(joined) <= SHORT_LENGTH):
                return None
            if texts["specversion"] != _VERSION or not all(texts.values()):
                return None
            check_meaning(texts)
            if "time" in texts:
                self._check_time(texts["time"])
        except Exception:
            return None
        return texts

    def _find_names(self, names: tuple[bytes, ...]) -> list[str]:
        """The attribute of each header, empty if it has none. Raises if they are not valid."""
        texts = [name.decode("ascii").lower() for name in names]
        if len(set(texts)) < len(texts) or max(map(len, texts)) > NAME_LENGTH:
            raise ValueError
        probe = {
            text: _VERSION if text == "ce-specversion" else _PROBE
            for text in texts
            if text != "ce-time"
        }
        known = self._parse(probe)
        found = [text.removeprefix("ce-") if text.startswith("ce-") else "" for text in texts]
        if "content-type" in texts:
            found[texts.index("content-type")] = "datacontenttype"
        return [name if name in known or name == "time" else "" for name in found]
