"""A bounded cache of prepared schemas, by the digest of their texts.

Preparing a schema takes milliseconds. A survey sends few schemas, each a thousand times; a
stranger may send a thousand, each once. So a schema that was used twice is kept apart from those
that were used once, and no number of new ones can evict it.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

from stampede.errors import StampedeError

Schema = TypeVar("Schema")

MOST = 32  # schemas of each kind; a prepared one takes up to 2 MB


class SchemaCache(Generic[Schema]):
    """Prepared schemas, and the errors of those that were refused."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._once: OrderedDict[bytes, Schema | StampedeError] = OrderedDict()
        self._often: OrderedDict[bytes, Schema | StampedeError] = OrderedDict()

    def get(self, text: bytes, prepare: Callable[[], Schema]) -> Schema:
        """The schema of this text. Raises what `prepare` raised, if it is a `StampedeError`."""
        key = blake2b(text, digest_size=16).digest()
        if key in self._often:
            self._often.move_to_end(key)
            found = self._often[key]
        elif key in self._once:
            found = self._often[key] = self._once.pop(key)
            if len(self._often) > self._most:
                evicted, schema = self._often.popitem(last=False)
                self._keep_once(evicted, schema)
        else:
            found = outcome(prepare)
            self._keep_once(key, found)
        if isinstance(found, StampedeError):
            raise found.anew()
        return found

    def _keep_once(self, key: bytes, schema: Schema | StampedeError) -> None:
        self._once[key] = schema
        if len(self._once) > self._most:
            self._once.popitem(last=False)


def outcome(prepare: Callable[[], Schema]) -> Schema | StampedeError:
    """What `prepare` returns, or the error that it raises."""
    try:
        return prepare()
    except StampedeError as error:
        return error.anew()
