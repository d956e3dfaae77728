"""What the bytes of a response hold, and what a large response says at its end that it lacks.

The headers of a large response are sent before its rows are read, so its end decides. A response
without its end is not whole.
"""

import io
import json
import re
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from stampede_client.cutouts import KINDS
from stampede_client.errors import UnexpectedResponse
from stampede_client.exchange import Content
from stampede_client.parquet_files import read_answer

SHOWN = 5
"""Unreadable ids that a message names."""
_MISSING, _UNREADABLE = b"stampede.missing", b"stampede.unreadable"
_INCOMPLETE = b"stampede.incomplete"
_MEMBER = re.compile(rf"([1-9][0-9]*)/((?:{'|'.join(KINDS)})\.fits\.gz)")
_END = "missing.json"


class Tar(NamedTuple):
    """By alert id the files of an alert; and the lists of what is not there, by reason."""

    alerts: dict[str, dict[str, bytes]]
    absent: dict[str, list[str]]


@contextmanager
def understood() -> Iterator[None]:
    """Raise `UnexpectedResponse` where a response is not of the form that the code expects."""
    try:
        yield
    except (
        *(pa.ArrowException, tarfile.TarError, OSError),
        *(ValueError, LookupError, TypeError, AttributeError, RecursionError),
    ) as error:
        raise UnexpectedResponse(f"the answer is not whole: {error!r:.200}; ask again") from None


def json_object(body: bytes) -> Content:
    """The members of a JSON object. Raises `UnexpectedResponse`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UnexpectedResponse("the answer is no JSON object; check the URL of the server")
    return Content(found)


def arrow_rows(body: bytes) -> Content:
    """The rows of a small response in Arrow. Raises `UnexpectedResponse`."""
    with understood():
        return Content(pa.ipc.open_stream(body).read_all())


def arrow_stream(body: bytes) -> Content:
    """The rows of a large response in Arrow, with the metadata of its end.

    Raises `UnexpectedResponse`.
    """
    with understood():
        reader, batches, end = pa.ipc.open_stream(body), [], {}
        for batch, metadata in reader.iter_batches_with_custom_metadata():
            batches.append(batch)
            end = dict(metadata or {})
        rows = pa.Table.from_batches(batches, reader.schema)
        return Content(rows.replace_schema_metadata(end), _lacking(end))


def missing_of(rows: pa.Table) -> list[str]:
    """The ids of which the rows of `arrow_stream` have nothing, as nothing is stored."""
    return _texts(json.loads((rows.schema.metadata or {})[_MISSING]))


def parquet_rows(body: bytes) -> Content:
    """The rows of a response in Parquet. Raises `UnexpectedResponse`."""
    with understood():
        rows, pairs = read_answer(body)
        return Content(rows, _lacking(pairs))


def tar_of(body: bytes, asked: Collection[str]) -> Content:
    """The cutouts of many alerts, a `Tar`.

    Raises `UnexpectedResponse`, also if there is anything but cutouts of the alerts that were asked
    for.
    """
    with understood():
        found = Tar(*_members(body, frozenset(asked)))
        return Content(found, _named(found.absent.get("incomplete", []), []))


def _members(
    body: bytes, asked: frozenset[str]
) -> tuple[dict[str, dict[str, bytes]], dict[str, list[str]]]:
    alerts: dict[str, dict[str, bytes]] = {}
    with tarfile.open(fileobj=io.BytesIO(body)) as members:
        for member in members:
            file = members.extractfile(member) if member.isreg() else None
            data = file.read() if file else None
            if data is not None and member.name == _END:
                return alerts, _lists(json.loads(data))
            name = _MEMBER.fullmatch(member.name)
            if data is None or not name or name[1] not in asked:
                raise UnexpectedResponse(f"nobody asked for {member.name!r:.80}, which the tar has")
            alerts.setdefault(name[1], {})[name[2]] = data
    raise UnexpectedResponse("the tar ends early; ask again")


def _lists(found: Any) -> dict[str, list[str]]:
    return {str(reason): _texts(items) for reason, items in found.items()}


def _texts(items: Any) -> list[str]:
    """A list of texts. Raises `TypeError`."""
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise TypeError("its end has no list of texts")
    return items


def _lacking(pairs: Mapping[bytes, bytes]) -> str:
    """What the end of a response says that it lacks. Raises `UnexpectedResponse` without an end."""
    if _MISSING not in pairs:
        raise UnexpectedResponse("the answer ends early; ask again")
    why, ids = (_texts(json.loads(pairs.get(name, b"[]"))) for name in (_INCOMPLETE, _UNREADABLE))
    return _named(why, ids)


def _named(why: list[str], ids: list[str]) -> str:
    if not ids:
        return ", ".join(why)
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return f"{', '.join(why)}; unreadable: {', '.join(ids[:SHOWN])}{more}"
