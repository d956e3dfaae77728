"""Queries that run while nobody waits: jobs of UWS 1.1, kept in the bucket.

https://www.ivoa.net/documents/UWS/20161024/. Pods come and go, so a job has a folder of its own:

=======================  =======================================================================
``tap/ID/job``           what was asked, and when it ends; written again while it is pending
``tap/ID/upload-NAME``   an uploaded table
``tap/ID/run``           which run it is, and until when its process is surely alive
``tap/ID/result-RUN``    the rows of the result
``tap/ID/end``           how it ended
=======================  =======================================================================

Whoever looks at a job whose run is not alive any more runs it again, up to `RUNS` times: a query
may run twice, and its result is the same. An id begins with the time of its destruction, so a
listing shows what has expired, the oldest first. It cannot be guessed: who has it has the job.
"""

import json
import re
import secrets
import time
from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from stampede.errors import NotFound
from stampede.read.errors import TooManyQueries
from stampede.read.tap.query_process import ipc_bytes, table_of
from stampede.store.objects.object_store import Objects
from stampede.store.objects.query_jobs import QUERY_JOBS as PREFIX

RUNS = 3
"""How often a job is begun before it is given up."""
ALIVE = 30.0
"""Seconds that a run counts as alive after it has said so."""
SAID_EVERY = 10.0
_ID = re.compile(r"[0-9a-f]{10}-[0-9a-f]{32}")


class Phase(StrEnum):
    """How far a job is."""

    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    ABORTED = "ABORTED"


class Job(NamedTuple):
    """A job as the bucket has it. Times are seconds of 1970.

    Attributes
    ----------
    parameters
        Of the query, by name in upper case.
    uploads
        Names of the uploaded tables.
    run
        How often it was begun; `alive_until` is of the last time.
    end
        Phase, message, time and number of the run that ended; None before.
    """

    id: str
    parameters: dict[str, str]
    uploads: list[str]
    created: float
    run: int = 0
    began: float = 0.0
    alive_until: float = 0.0
    end: dict[str, Any] | None = None

    @property
    def destruction(self) -> float:
        """When it is deleted."""
        return float(int(self.id.partition("-")[0], 16))

    @property
    def phase(self) -> Phase:
        """How far it is; a run that is not alive any more is executing still: `Jobs.due`."""
        if self.end:
            return Phase(self.end["phase"])
        return Phase.EXECUTING if self.run else Phase.PENDING


class Jobs:
    """The jobs in a bucket. Threads and pods may share them.

    Parameters
    ----------
    most
        Jobs that are kept at once.
    seconds
        How long a job is kept.
    """

    def __init__(
        self, objects: Objects, most: int, seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._objects, self._most, self._seconds, self._clock = objects, most, seconds, clock

    def make(self, parameters: dict[str, str], uploads: dict[str, pa.Table]) -> Job:
        """Store a new job, and delete those that have expired.

        Raises `TooManyQueries` if too many are kept, `StoreDown`.
        """
        now = self._clock()
        kept = 0
        for folder in islice(self._objects.list_folder(PREFIX).folders, 2 * self._most):
            job_id = folder.removeprefix(PREFIX).strip("/")
            if _ID.fullmatch(job_id) and int(job_id[:10], 16) < now:
                self.delete(job_id)
            else:
                kept += 1
        if kept >= self._most:
            raise TooManyQueries(f"{kept} jobs are kept: delete one, or try again later")
        job_id = f"{int(now + self._seconds):010x}-{secrets.token_hex(16)}"
        for name, rows in uploads.items():
            self._objects.put(_key(job_id, f"upload-{name}"), memoryview(ipc_bytes(rows)))
        job = Job(job_id, parameters, [*uploads], now)
        self.keep(job)
        return job

    def keep(self, job: Job) -> None:
        """Store what a job asks. Raises `StoreDown`."""
        asked = {"parameters": job.parameters, "uploads": job.uploads, "created": job.created}
        self._put(job.id, "job", asked)

    def get(self, job_id: str) -> Job:
        """A job. Raises `NotFound`, `StoreDown`."""
        if not _ID.fullmatch(job_id) or int(job_id[:10], 16) < self._clock():
            raise NotFound(f"there is no job {job_id[:60]!r}, or not any more")
        asked = self._read(job_id, "job")
        if asked is None:
            raise NotFound(f"there is no job {job_id!r}, or not any more")
        run = self._read(job_id, "run") or {}
        return Job(id=job_id, **asked, **run, end=self._read(job_id, "end") if run else None)

    def uploads(self, job: Job) -> dict[str, pa.Table]:
        """The uploaded tables of a job. Raises `NotFound`, `StoreDown`."""
        return {
            name: table_of(self._objects.get(_key(job.id, f"upload-{name}")))
            for name in job.uploads
        }

    def due(self, job: Job) -> bool:
        """Whether a job was begun, has no end, and its process is gone."""
        return job.phase is Phase.EXECUTING and job.alive_until < self._clock()

    def begin(self, job: Job) -> Job:
        """Begin a run. Raises `StoreDown`."""
        begun = job._replace(run=job.run + 1, began=self._clock())
        return self.say_alive(begun)

    def say_alive(self, job: Job) -> Job:
        """Say that the process of a run is alive. Raises `StoreDown`."""
        alive = job._replace(alive_until=self._clock() + ALIVE)
        said = {"run": alive.run, "began": alive.began, "alive_until": alive.alive_until}
        self._put(job.id, "run", said)
        return alive

    def ended(self, job: Job) -> bool:
        """Whether a job has an end, or is gone. Raises `StoreDown`."""
        return self._read(job.id, "end") is not None or self._read(job.id, "job") is None

    def complete(self, job: Job, rows: pa.Table, overflow: bool, incomplete: list[str]) -> None:
        """Store the result of a run, then its end. Raises `StoreDown`.

        Parameters
        ----------
        incomplete
            Why the result may lack rows.
        """
        self._objects.put(_key(job.id, f"result-{job.run}"), memoryview(ipc_bytes(rows)))
        self.finish(job, Phase.COMPLETED, overflow=overflow, incomplete=incomplete)

    def finish(self, job: Job, phase: Phase, message: str = "", **more: Any) -> None:
        """Store the end of a job. Raises `StoreDown`."""
        end = {"phase": phase, "message": message, "time": self._clock(), "run": job.run, **more}
        if not job.run:  # an end is looked for where a run is
            self.say_alive(job)
        self._put(job.id, "end", end)

    def result(self, job: Job) -> pa.Table:
        """The rows of a job that is complete. Raises `NotFound`, `StoreDown`."""
        run = job.end["run"] if job.end else 0
        return table_of(self._objects.get(_key(job.id, f"result-{run}")))

    def delete(self, job_id: str) -> None:
        """Delete a job. Raises `StoreDown`."""
        for info in list(self._objects.list(f"{PREFIX}{job_id}/")):
            self._objects.delete(info.key)

    def _put(self, job_id: str, name: str, content: dict[str, Any]) -> None:
        self._objects.put(_key(job_id, name), json.dumps(content).encode())

    def _read(self, job_id: str, name: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads(self._objects.get(_key(job_id, name)))
        except NotFound:
            return None
        return content


def _key(job_id: str, name: str) -> str:
    return f"{PREFIX}{job_id}/{name}"
