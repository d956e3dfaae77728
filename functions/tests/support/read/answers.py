"""Answers of `read` to every kind of request, and what one has that another lacks."""

import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import pyarrow as pa
import pyarrow.parquet as pq

from stampede.lookup.packs.images import Absent
from stampede.lookup.response_warnings import INCOMPLETE
from tests.support.store.whole_store import Filled

_FLAGS = (
    rb'stampede\.(incomplete|damaged|gone)|"incomplete"|damaged objects? left out|"damaged":\[{'
)
ROWS = ("json", "csv", "arrow", "parquet", "votable")
_NO_ROWS = ("incomplete", "ledger", "damaged")
"""Members of JSON documents that say what is lacking, or that are sums over what is not."""
CONE_ROWS = [name for name in ROWS if name != "arrow"]


class Request(NamedTuple):
    """A request to `read`."""

    path: str
    body: bytes | None = None


class Answer(NamedTuple):
    """A response, and whether its connection was closed before its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    broken: bool

    @property
    def flagged(self) -> bool:
        """Whether it says that it is an error, or that it may lack something."""
        if self.status >= 500 or self.broken or INCOMPLETE.lower() in self.headers:
            return True
        return bool(re.search(_FLAGS, self.body)) or self._lists_damage()

    def _lists_damage(self) -> bool:
        """Whether a tar file lists cutouts that could not be read."""
        if "tar" not in self.headers.get("content-type", ""):
            return False
        with tarfile.open(fileobj=io.BytesIO(self.body)) as tar:
            file = tar.extractfile("missing.json")
            lists = json.load(file) if file else {}
        return any(lists.get(reason.value) for reason in (Absent.DAMAGED, Absent.GONE))


def requests_of(filled: Filled) -> list[Request]:
    """Requests for every route, in every format, of several alerts, objects and nights."""
    alerts, objects = filled.alert_ids, filled.object_ids
    ids = "\n".join(map(str, alerts[::7])).encode()
    names = "\n".join(objects).encode()
    lsst, ztf = objects[0], objects[-1]
    paths = ["/", "/nights", "/ledger", "/v1/ledger", "/v1/alerts", "/v1/alerts?limit=100"]
    paths += [f"/nights/{night}" for night in filled.nights]
    for alert in (alerts[0], alerts[25], alerts[-1], alerts[-20]):
        base = f"/v1/alerts/{alert}"
        paths += [base, f"{base}/packet", f"{base}/thumbnail", f"/alerts/{alert}"]
        paths += [f"{base}/cutouts/{kind}" for kind in ("science", "template", "difference")]
        paths += [f"{base}/cutouts/science?format={name}" for name in ("png", "npy")]
    for name in (lsst, ztf):
        paths += [f"/v1/objects/{name}/lightcurve?format={format}" for format in ROWS]
        paths += [f"/objects/{name}", f"/v1/objects/{name}/cutouts", f"/find?id={name}"]
    asked = [Request(path) for path in paths]
    asked += [Request(f"/v1/cutouts?format={name}", ids) for name in ("tar", "arrow")]
    asked += [
        Request(f"/v1/lightcurves?format={name}", names) for name in ("csv", "arrow", "parquet")
    ]
    return asked + as_they_were_known(filled)


def as_they_were_known(filled: Filled) -> list[Request]:
    """Requests for light curves of an earlier time."""
    night = filled.nights[len(filled.nights) // 2]
    names, ids = (
        "\n".join(map(str, some)).encode() for some in (filled.object_ids, filled.alert_ids[::7])
    )
    curves = (f"/v1/objects/{filled.object_ids[n]}/lightcurve?asof={night}" for n in (0, -1))
    asked = [Request(path) for path in curves]
    for name in ("csv", "parquet"):
        asked.append(Request(f"/v1/lightcurves?format={name}&asof={night}", names))
        asked.append(Request(f"/v1/lightcurves?format={name}&asof=alert", ids))
    return asked


def cones_of(ra: float, dec: float) -> list[Request]:
    """Requests for the objects around a position."""
    where = f"ra={ra}&dec={dec}"
    csv = f"ra,dec\n{ra},{dec}\n".encode()
    return [
        *(
            Request(f"/v1/cone?{where}&radius=1deg&format={name}")
            for name in ROWS
            if name != "arrow"
        ),
        Request(f"/cone?{where}&radius=5"),
        Request(f"/v1/scs?RA={ra}&DEC={dec}&SR=1"),
        Request("/v1/cone?radius=10&format=csv", csv),
    ]


async def ask(app: Any, request: Request) -> Answer:
    """What an ASGI app answers in the same process."""
    sent, received = list[dict[str, Any]](), list[bool]()
    path, _, query = request.path.partition("?")

    async def receive() -> dict[str, Any]:
        if received:
            await anyio.sleep_forever()
        received.append(True)
        return {"type": "http.request", "body": request.body or b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET" if request.body is None else "POST",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"here"), (b"accept", b"*/*")],
    }
    broken = False
    try:
        await app(scope, receive, send)
    except Exception:
        broken = True
    if not sent:
        return Answer(500, {}, b"", True)
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(part.get("body", b"") for part in sent[1:])
    broken |= sent[-1].get("type") != "http.response.body" or bool(sent[-1].get("more_body"))
    return Answer(sent[0]["status"], headers, body, broken)


def same(response: Answer, truth: Answer) -> bool:
    """Whether two responses say the same."""
    return (response.status, steady(response.body)) == (truth.status, steady(truth.body))


def surplus(request: Request, response: Answer, truths: Sequence[Answer]) -> list[Any]:
    """The rows of a response that none of the true ones has."""
    if response.status >= 400 or not response.body:
        return []
    known = [row for truth in truths if truth.status < 400 for row in rows_of(request, truth)]
    return [row for row in rows_of(request, response) if row not in known]


def steady(body: bytes) -> bytes:
    """A body without what differs from one moment to the next."""
    return re.sub(rb"[0-9]+ (seconds?|minutes?|s|min|ms)\b", b"", body)


def rows_of(request: Request, response: Answer) -> list[Any]:
    """The rows, files or lines of a response, as far as it goes."""
    kind, body = response.headers.get("content-type", ""), response.body
    if "json" in kind:
        return [*_leaves(json.loads(body))]
    if "csv" in kind:
        lines = body.decode().splitlines()
        return [line for line in lines if line.strip(",").count(",")]
    if "arrow" in kind or "parquet" in kind:
        return _arrow_rows(body, "arrow" in kind)
    if "tar" in kind:
        return _members(body)
    if "votable" in kind or "xml" in kind:
        return re.findall(rb"<TR>.*?</TR>", body, re.DOTALL)
    if "html" in kind:
        return re.findall(rb'(?:href|src)="(/(?:v1/)?(?:alerts|objects)/[^"?]*)', body)
    return [body]


def _leaves(value: Any) -> Sequence[Any]:
    """The objects of a JSON document that hold no lists of objects."""
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    if not isinstance(value, dict):
        return []
    inner = [leaf for name, each in value.items() if name not in _NO_ROWS for leaf in _leaves(each)]
    return inner or [value]


def _arrow_rows(body: bytes, stream: bool) -> list[Any]:
    try:
        table = pa.ipc.open_stream(body).read_all() if stream else pq.read_table(io.BytesIO(body))
    except pa.ArrowException:
        return []
    return [row for row in table.to_pylist() if row.get("fits", b"")]


def _members(body: bytes) -> list[Any]:
    found = []
    with tarfile.open(fileobj=io.BytesIO(body), ignore_zeros=True) as tar:
        for member in tar:
            if member.name.endswith(".fits.gz") and (file := tar.extractfile(member)):
                found.append((member.name, file.read()))
    return found
