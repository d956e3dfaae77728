"""The client for asyncio: the methods of `Client`, to be awaited."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
from astropy.table import Table

from stampede_client import queries
from stampede_client.connection import Attempts, arguments, completed, options, response_of
from stampede_client.cutouts import Cutouts
from stampede_client.downloads import BATCH, Download, Fetched, Progress
from stampede_client.exchange import Plan, Request, ServerResponse
from stampede_client.light_curve import LightCurve
from stampede_client.queries import Moment, MomentOfMany, PacketFormat
from stampede_client.sky import Angle, Position, Radius

T = TypeVar("T")


def connect_async(
    url: str, token: str | None = None, timeout: float = 60.0, strict: bool = False
) -> "AsyncClient":
    """As `stampede_client.connect`; use it as ``async with connect_async(url) as st:``."""
    return AsyncClient(url, token, timeout, strict)


class AsyncClient:
    """As `stampede_client.Client`; each method is to be awaited."""

    def __init__(self, url: str, token: str | None, timeout: float, strict: bool) -> None:
        self._url, self._strict = url, strict
        self._http = httpx.AsyncClient(**options(url, token, timeout))

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """See `Client.close`."""
        await self._http.aclose()

    async def alert(
        self, alert_id: int | str, survey: str | None = None, fields: Collection[str] = ()
    ) -> dict[str, Any]:
        """See `Client.alert`."""
        return await self._run(queries.alert(alert_id, survey, fields))

    async def cutouts(self, alert_id: int | str, survey: str | None = None) -> Cutouts:
        """See `Client.cutouts`."""
        return await self._run(queries.cutouts(alert_id, survey))

    async def packet(
        self,
        alert_id: int | str,
        survey: str | None = None,
        format: PacketFormat | None = None,
    ) -> bytes:
        """See `Client.packet`."""
        return await self._run(queries.packet(alert_id, survey, format))

    async def schema(self, alert_id: int | str, survey: str | None = None) -> dict[str, Any]:
        """See `Client.schema`."""
        return await self._run(queries.schema(alert_id, survey))

    async def picture(
        self,
        alert_id: int | str,
        kind: str = "science",
        size: int | None = None,
        survey: str | None = None,
    ) -> bytes:
        """See `Client.picture`."""
        return await self._run(queries.picture(alert_id, kind, size, survey))

    async def guide(self) -> str:
        """See `Client.guide`."""
        return await self._run(queries.guide())

    async def thumbnail(self, alert_id: int | str, survey: str | None = None) -> bytes:
        """See `Client.thumbnail`."""
        return await self._run(queries.thumbnail(alert_id, survey))

    async def lightcurve(
        self,
        object_id: int | str,
        magnitudes: bool = False,
        asof: Moment | None = None,
        **points: Any,
    ) -> LightCurve:
        """See `Client.lightcurve`."""
        return await self._run(queries.light_curve(object_id, magnitudes, asof, **points))

    async def moving(
        self,
        designation: int | str,
        magnitudes: bool = False,
        *,
        survey: str | None = None,
        **chosen: Any,
    ) -> Table:
        """See `Client.moving`."""
        return await self._run(queries.moving(designation, magnitudes, survey, **chosen))

    async def cone(
        self, position: Position, *more: Angle | Radius, radius: Radius | None = None
    ) -> Table:
        """See `Client.cone`."""
        return await self._run(queries.cone(position, more, radius))

    async def recent(self, limit: int = 12) -> Table:
        """See `Client.recent`."""
        return await self._run(queries.recent(limit))

    async def fetch_cutouts(
        self, ids: Iterable[int | str], folder: str | Path, progress: Progress | None = None
    ) -> Fetched:
        """See `Client.fetch_cutouts`."""
        download = Download(map(queries.checked_alert, ids), Path(folder), progress)
        for batch in download.batches():
            download.keep(await self._run(queries.cutout_files(batch)))
        return download.result

    async def lightcurves(
        self, ids: Iterable[int | str], asof: MomentOfMany | None = None
    ) -> AsyncIterator[LightCurve]:
        """See `Client.lightcurves`; use it with ``async for``."""
        names = queries.ids_asked(ids, asof)
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            for curve in await self._run(queries.light_curves(batch, asof)):
                yield curve

    async def ledger(self) -> dict[str, Any]:
        """See `Client.ledger`."""
        return await self._run(queries.ledger())

    async def _run(self, plan: Plan[T]) -> T:
        try:
            request = next(plan)
            while True:
                request = plan.send(await self._exchange(request))
        except StopIteration as done:
            result: T = done.value
            return result

    async def _exchange(self, request: Request) -> ServerResponse:
        attempts = Attempts(self._url)
        while True:
            try:
                response = response_of(await self._http.request(**arguments(request)))
                seconds = attempts.after_response(response)
            except httpx.RequestError as error:
                seconds = attempts.after_failure(error)
            if seconds is None:
                return completed(request, response, self._strict)
            await asyncio.sleep(seconds)
