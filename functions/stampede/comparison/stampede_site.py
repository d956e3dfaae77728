"""Another Stampede, asked for its proofs: roots first, then only the ranges of ids that differ."""

from collections.abc import Sequence

import numpy as np
import urllib3
from urllib3.exceptions import HTTPError

from stampede.comparison.compare import Held, Place
from stampede.errors import Damaged, SetupError, StoreDown
from stampede.proofs.leaves import SUBTREE, WIDTH, ids_of, no_entries, root_of_entries, united
from stampede.proofs.ranges import MOST_ENTRIES, begins_of, digests_of, slices_of, text_of

SECONDS = 120.0
NIGHTS = 1000
"""Nights of one answer: as many as it may have."""


class StampedeSite:
    """The proofs of a Stampede, by the routes of its function `read`.

    Parameters
    ----------
    url
        Its base address.
    token
        For `Authorization`, if it demands one.

    Attributes
    ----------
    received
        Bytes of answers.
    faults
        See `Archive.faults`.

    Raises `SetupError` if it is not there, or refuses.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(timeout=SECONDS, retries=2)
        self.received = 0
        self.faults: list[str] = []
        self._roots: dict[Place, tuple[str, int]] = {}
        self._damaged: dict[Place, str] = {}

    def nights(self) -> list[Place]:
        """The surveys and nights that have proofs there."""
        before: int | None = None
        while True:
            earlier = "" if before is None else f"&before={before}"
            page = self._get(f"/v1/proofs?limit={NIGHTS}{earlier}").json()
            for each in page["proofs"]:
                place = str(each["survey"]), int(each["night"])
                self._roots[place] = each["root"], each["entries"]
            for each in page.get("damaged", ()):
                self._damaged[str(each["survey"]), int(each["night"])] = str(each["why"])
            if (before := page.get("next")) is None:
                return sorted({*self._roots, *self._damaged})

    def held(self, place: Place, ours: np.ndarray) -> tuple[np.ndarray, Held]:
        """See `Archive.held`."""
        if why := self._damaged.get(place):
            raise Damaged(f"the proof at {self._url} is damaged: {why}")
        root, count = self._roots.get(place, ("", 0))
        if not count:
            return ours, Held(no_entries())
        if root_of_entries(ours).hex() == root:
            return no_entries(), Held(no_entries())
        begins = begins_of(ids_of(ours), SUBTREE)
        path = f"/v1/proofs/{place[0]}/{place[1]}"
        answer = self._get(f"{path}/ranges", text_of(begins)).data
        digests = [answer[at : at + 32] for at in range(0, len(answer), 32)]
        if len(digests) != len(begins) + 1:
            raise Damaged(f"{self._url} answers with {len(digests)} ranges, not {len(begins) + 1}")
        own = digests_of([ours], begins)
        unequal = [number for number, each in enumerate(digests) if each != own[number]]
        places = slices_of(ours, begins)
        some = [ours[places[number]] for number in unequal]
        there = [self._entries(path, begins, number) for number in unequal]
        return np.concatenate([no_entries(), *some]), Held(np.concatenate([no_entries(), *there]))

    def rest(self) -> np.ndarray:
        """None: each alert has its night."""
        return np.zeros(0, np.int64)

    def _entries(self, path: str, begins: Sequence[int], number: int) -> np.ndarray:
        """The entries of one range, asked for in parts if it has many."""
        first = begins[number - 1] if number else 0
        until = f"&until={begins[number]}" if number < len(begins) else ""
        found = no_entries()
        while True:
            data = self._get(f"{path}/entries?from={first}{until}").data
            if len(data) % WIDTH:
                raise Damaged(f"{self._url} answers with a part of an entry")
            some = np.frombuffer(data, np.uint8).reshape(-1, WIDTH)
            found = united(found, some)
            if len(some) < MOST_ENTRIES or int(ids_of(some)[-1]) == first:
                return found
            first = int(ids_of(some)[-1])

    def _get(self, path: str, body: bytes | None = None) -> urllib3.BaseHTTPResponse:
        try:
            got = self._pool.request(
                "POST" if body is not None else "GET",
                self._url + path,
                body=body,
                headers=self._headers,
            )
        except HTTPError as error:
            raise StoreDown(f"{self._url} does not answer: {error}") from None
        self.received += len(got.data)
        if got.status != 200:
            raise SetupError(f"{self._url}{path} answers {got.status}: {got.data[:200]!r}")
        return got
