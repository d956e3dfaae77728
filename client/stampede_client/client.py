"""The client that waits for each response."""

import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from weakref import finalize

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


def connect(
    url: str, token: str | None = None, timeout: float = 60.0, strict: bool = False
) -> "Client":
    """A client of the server at `url`. No request is sent yet.

    Parameters
    ----------
    url
        Such as ``http://127.0.0.1:8080``.
    token
        Bearer token, if the server demands one.
    timeout
        Seconds without a byte after which an attempt has failed.
    strict
        Raise `Incomplete` where the server says that its response may lack something that is
        stored; otherwise this is a warning, `IncompleteWarning`.

    Raises
    ------
    BadInput
        If `url` is none.
    """
    return Client(url, token, timeout, strict)


class Client:
    """Sends queries to a server; may be used in a ``with`` block, which closes its connections.

    All methods raise `StampedeClientError`. An alert id is a diaSourceId or candid, an object id a
    diaObjectId, ssObjectId or ZTF's objectId; each may be int or str. `survey` (lsst, ztf,
    winter, desirt) is needed only for an alert id that more than one survey has.
    """

    def __init__(self, url: str, token: str | None, timeout: float, strict: bool) -> None:
        self._url, self._strict = url, strict
        self._http = httpx.Client(**options(url, token, timeout))
        finalize(self, self._http.close)  # of a client that is not closed, at the latest at the end

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def alert(
        self, alert_id: int | str, survey: str | None = None, fields: Collection[str] = ()
    ) -> dict[str, Any]:
        """What is stored of an alert, and its fields as the survey sent them.

        Parameters
        ----------
        fields
            Names of the fields, such as ``diaSource``. All of them if there are none, with the
            history. `BadInput` lists those that the alert has.
        """
        return self._run(queries.alert(alert_id, survey, fields))

    def cutouts(self, alert_id: int | str, survey: str | None = None) -> Cutouts:
        """The images of an alert."""
        return self._run(queries.cutouts(alert_id, survey))

    def packet(
        self,
        alert_id: int | str,
        survey: str | None = None,
        format: PacketFormat | None = None,
    ) -> bytes:
        """The Avro message as the survey sent it, byte for byte.

        Parameters
        ----------
        format
            ``"ocf"``, an Avro object container with the schema inside, which any Avro reader opens;
            ``"json"``, with images in base64; ``"fits"``, all images in one file.
        """
        return self._run(queries.packet(alert_id, survey, format))

    def schema(self, alert_id: int | str, survey: str | None = None) -> dict[str, Any]:
        """The Avro schema that the alert was written with."""
        return self._run(queries.schema(alert_id, survey))

    def picture(
        self,
        alert_id: int | str,
        kind: str = "science",
        size: int | None = None,
        survey: str | None = None,
    ) -> bytes:
        """A PNG of one cutout: north up, its longer side `size` pixels, or as many as it has."""
        return self._run(queries.picture(alert_id, kind, size, survey))

    def guide(self) -> str:
        """What the server has, how to ask for it, and what its columns mean: text, Markdown."""
        return self._run(queries.guide())

    def thumbnail(self, alert_id: int | str, survey: str | None = None) -> bytes:
        """A PNG of the three cutouts side by side."""
        return self._run(queries.thumbnail(alert_id, survey))

    def lightcurve(
        self,
        object_id: int | str,
        magnitudes: bool = False,
        asof: Moment | None = None,
        **points: Any,
    ) -> LightCurve:
        """The light curve of an object.

        Parameters
        ----------
        magnitudes
            Adds the columns ``mag`` and ``mag_err``.
        asof
            Only what the survey had told at that time: a `Time`, an MJD (TAI) as float, or the id
            of an alert of the object. That is the history in the packet of the latest alert until
            then. If no packet is kept, an `IncompleteWarning` says so.
        points
            Only points of ``band`` (``"g"``, or several), from ``start`` to ``end`` (a `Time`, or
            MJD, TAI), and with ``forced`` true only forced photometry, false none; only those of
            one ``survey`` or archive.
        """
        return self._run(queries.light_curve(object_id, magnitudes, asof, **points))

    def moving(
        self,
        designation: int | str,
        magnitudes: bool = False,
        *,
        survey: str | None = None,
        **chosen: Any,
    ) -> Table:
        """What alerts show of a body of the solar system, by time: a row for each alert.

        Parameters
        ----------
        designation
            The number or the designation of an asteroid or comet, in any form of the Minor Planet
            Center: ``45685``, ``"2011 UW158"``, ``"K11UF8W"``, ``"C/2017 K2"``. Names are not
            known. `NotFound` says that no alert of the body is stored.
        magnitudes
            Adds the columns ``mag`` and ``mag_err``.
        survey
            Only alerts of this survey.
        chosen
            Only observations in ``band`` (``"g"``, or several), from ``start`` to ``end`` (a
            `Time`, or MJD, TAI).

        Returns
        -------
        astropy.table.Table
            Columns of the table *moving* of docs/columns.md with their units, ``alert_id`` among
            them, which `fetch_cutouts` takes; ``mjd`` and ``processed_mjd`` are `Time`. A value
            that the survey did not send is masked. ``meta["designation"]`` has the standard form.
        """
        return self._run(queries.moving(designation, magnitudes, survey, **chosen))

    def cone(
        self, position: Position, *more: Angle | Radius, radius: Radius | None = None
    ) -> Table:
        """The objects around a position, the nearest first; or around each of several.

        As ``cone(ra, dec, radius=5)``, ``cone((ra, dec), 5)`` or ``cone(position, 5)``.

        Parameters
        ----------
        position
            SkyCoord, or text such as ``00:03:15.4 +16:08:44`` or ``0.814167 16.145556`` (ICRS), or
            right ascension and declination in degrees. Arrays of positions are cross-matched.
        radius
            arcsec, or an astropy Quantity; of several positions 60 arcsec at most.

        Returns
        -------
        astropy.table.Table
            Columns object_id, survey, ra, dec (deg), distance (arcsec), detections, first_mjd,
            last_mjd (`Time`). For several positions ``position`` comes first: the number of the
            position, from 0, of each match.
        """
        return self._run(queries.cone(position, more, radius))

    def recent(self, limit: int = 12) -> Table:
        """The latest alerts of the store, 100 at most, the latest first.

        Returns
        -------
        astropy.table.Table
            Columns alert_id, survey, object_id, mjd (`Time`), band.
        """
        return self._run(queries.recent(limit))

    def fetch_cutouts(
        self, ids: Iterable[int | str], folder: str | Path, progress: Progress | None = None
    ) -> Fetched:
        """Write the cutouts of many alerts to ``<folder>/<alert id>/<kind>.fits.gz``.

        A second call continues: it skips the alerts that are there. `progress` is called with the
        number of alerts that are done, and of all. Ids that the server does not have are no error.
        An alert that it cannot read wholly now is not written: a later call asks for it again.
        """
        download = Download(map(queries.checked_alert, ids), Path(folder), progress)
        for batch in download.batches():
            download.keep(self._run(queries.cutout_files(batch)))
        return download.result

    def lightcurves(
        self, ids: Iterable[int | str], asof: MomentOfMany | None = None
    ) -> Iterator[LightCurve]:
        """The light curves of many objects, one after the other, each id once.

        Of objects that the server does not have there is none, and a `MissingWarning` names them.
        Some are read ahead, never all. If the server could not read all of some, an
        `IncompleteWarning` names them, or `Incomplete`.
        """
        names = queries.ids_asked(ids, asof)
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            yield from self._run(queries.light_curves(batch, asof))

    def ledger(self) -> dict[str, Any]:
        """The offsets that are stored, dead-lettered and missing, by table and partition."""
        return self._run(queries.ledger())

    def _run(self, plan: Plan[T]) -> T:
        try:
            request = next(plan)
            while True:
                request = plan.send(self._exchange(request))
        except StopIteration as done:
            result: T = done.value
            return result

    def _exchange(self, request: Request) -> ServerResponse:
        attempts = Attempts(self._url)
        while True:
            try:
                response = response_of(self._http.request(**arguments(request)))
                seconds = attempts.after_response(response)
            except httpx.RequestError as error:
                seconds = attempts.after_failure(error)
            if seconds is None:
                return completed(request, response, self._strict)
            time.sleep(seconds)
