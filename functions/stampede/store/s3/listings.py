"""Listings and heads of an S3 bucket, signed and read here.

`read` needs no other request beside GETs, so it starts without minio-py, whose import takes 100 ms
(docs/adr/0050-starts.md). obstore cannot list: its prefixes are folders, so that `a` does not list
`a-b`.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote_plus
from xml.etree import ElementTree

import urllib3
from urllib3.exceptions import HTTPError

from stampede.errors import NotFound
from stampede.store.objects.object_store import Folder, ObjectInfo
from stampede.store.s3.credentials import S3Keys
from stampede.store.s3.faults import failure, refusal
from stampede.store.s3.sigv4 import Signer
from stampede.store.s3.url import host_of

PAGE = 1000
"""Most entries in one response; S3 gives no more."""
EMPTY_PAGES = 100
"""Pages without an entry, one after another, after which a listing fails: it may have no end."""
_CODE = re.compile(rb"<Code>(\w+)</Code>")
# What the status of a HEAD says, whose response has no body with a code.
_HEAD_CODES = {403: "AccessDenied", 405: "MethodNotAllowed", 501: "MethodNotAllowed"}
_ROOT = "ListBucketResult"


class Page(NamedTuple):
    """One response to a listing, and what to ask for the next page with; "" after the last."""

    objects: list[ObjectInfo]
    folders: list[str]
    token: str


class S3Lists:
    """Lists the objects of one bucket. Safe to share between threads.

    Parameters
    ----------
    url
        ``http(s)://HOST:PORT/BUCKET``.
    pool
        Sends the requests; its retries and timeouts hold.
    """

    def __init__(
        self, url: SplitResult, keys: S3Keys, region: str, pool: urllib3.PoolManager
    ) -> None:
        self._host, self._pool = host_of(url), pool
        self._endpoint = f"{url.scheme}://{url.netloc}"
        self._bucket = url.path.strip("/")
        self._base = f"{url.scheme}://{self._host}"
        self._keys = keys
        self._signer = Signer(keys, region) if keys.current.access_key else None

    def list(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """See `Objects.list`; a thousand keys per request."""
        for page in self._pages(prefix, after, ""):
            yield from page.objects

    def list_folder(self, folder: str) -> Folder:
        """See `Objects.list_folder`."""
        pages = list(self._pages(folder, "", "/"))
        # An object whose name is that of the folder is a mark that other programs leave.
        return Folder(
            [found for page in pages for found in page.folders],
            [info for page in pages for info in page.objects if info.key != folder],
        )

    def head(self, key: str) -> ObjectInfo:
        """See `Objects.head`."""
        response = self._send("HEAD", f"/{self._bucket}/{quote(key, safe='/~')}", "", key)
        headers = response.headers
        try:
            modified = parsedate_to_datetime(headers["Last-Modified"]).replace(tzinfo=UTC)
            size = int(headers["Content-Length"])
        except (KeyError, ValueError) as error:
            raise failure(self._endpoint, key, error) from error
        return ObjectInfo(key, size, headers.get("ETag", "").strip('"'), modified)

    def _pages(self, prefix: str, after: str, delimiter: str) -> Iterator[Page]:
        token, last, empty = "", after, 0
        while True:
            # In the order of their names, which the signature needs. A store may allow a listing
            # only with the parameters that are empty.
            asked = {"continuation-token": token} if token else {}
            asked |= {"delimiter": delimiter, "encoding-type": "url", "list-type": "2"}
            asked |= {"max-keys": str(PAGE), "prefix": prefix}
            if after and not token:
                asked["start-after"] = after
            query = "&".join(f"{name}={quote(value, safe='~')}" for name, value in asked.items())
            response = self._send("GET", f"/{self._bucket}", query, prefix)
            try:
                page = page_of(response.data)
                last, empty = _advance(page, last, empty)
            except (ElementTree.ParseError, ValueError) as error:
                raise failure(self._endpoint, prefix, error) from error
            yield page
            if not page.token:
                return
            token = page.token

    def _send(self, method: str, path: str, query: str, key: str) -> urllib3.BaseHTTPResponse:
        """The response, if it is 200. Raises `NotFound` for a HEAD alone, and `StoreDown`."""
        return self._keys.retry_refused(lambda: self._send_once(method, path, query, key))

    def _send_once(self, method: str, path: str, query: str, key: str) -> urllib3.BaseHTTPResponse:
        headers = {"Host": self._host}
        if self._signer:
            now = datetime.now(UTC)
            headers |= self._signer.headers(method, self._host, path, query, now)
        url = f"{self._base}{path}?{query}" if query else f"{self._base}{path}"
        try:
            response = self._pool.urlopen(method, url, headers=headers)
        except (HTTPError, OSError) as error:
            raise failure(self._endpoint, key, error) from error
        if response.status == 200:
            return response
        if method == "HEAD":
            if response.status == 404:
                raise NotFound(f"the store has no object {key}")
            code = _HEAD_CODES.get(response.status)
        else:
            found = _CODE.search(response.data)
            code = found[1].decode() if found else None
        if code:
            raise refusal(self._endpoint, code, key)
        answered = OSError(f"it answered {response.status}")
        raise failure(self._endpoint, key, answered)


def _advance(page: Page, last: str, empty: int) -> tuple[str, int]:
    """The last name up to a page's end, and how many empty pages came at the end.

    Names are in the order of their bytes, over all pages: a listing that goes back may never end.
    Raises `ValueError` for it.
    """
    found = last
    for names in ([info.key for info in page.objects], page.folders):
        for before, name in pairwise([last, *names]):
            if name <= before:
                raise ValueError(f"its listing has {name!r}, out of order after {before!r}")
        found = max([found, *names[-1:]])
    empty = 0 if found > last else empty + 1
    if page.token and empty == EMPTY_PAGES:
        raise ValueError(f"its listing has {EMPTY_PAGES} empty pages in a row")
    return found, empty


def page_of(response: bytes) -> Page:
    """What a response to a listing says.

    Raises
    ------
    ElementTree.ParseError, ValueError
        It is no such response: a page of something in between must not look like an empty bucket.
    """
    root = ElementTree.fromstring(response)
    namespace, _, name = root.tag.rpartition("}")
    if name != _ROOT:
        raise ValueError(f"its answer is no listing, but {name}")
    space = f"{namespace}}}" if namespace else ""
    escaped = root.findtext(f"{space}EncodingType") == "url"

    def text(entry: ElementTree.Element, field: str) -> str:
        found = entry.findtext(f"{space}{field}")
        if found is None:
            raise ValueError(f"its listing has an entry without {field}")
        return found

    def named(entry: ElementTree.Element, field: str) -> str:
        return unquote_plus(text(entry, field)) if escaped else text(entry, field)

    objects = [
        ObjectInfo(
            named(entry, "Key"),
            int(text(entry, "Size")),
            (entry.findtext(f"{space}ETag") or "").replace('"', ""),
            _time(text(entry, "LastModified")),
        )
        for entry in root.iterfind(f"{space}Contents")
    ]
    folders = [named(entry, "Prefix") for entry in root.iterfind(f"{space}CommonPrefixes")]
    token = ""
    if (root.findtext(f"{space}IsTruncated") or "").lower() == "true":
        token = root.findtext(f"{space}NextContinuationToken") or ""
        if not token:
            raise ValueError("its listing is cut short and does not say where it goes on")
    return Page(objects, folders, token)


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
