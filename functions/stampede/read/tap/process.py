"""Processes that run queries: started with the first query, killed with one that takes too long."""

import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from stampede.read.tap.errors import BadAdql, QueryFailed, QueryTooLarge
from stampede.read.tap.query_process import (
    OUT_OF_MEMORY,
    READY,
    ipc_bytes,
    run_queries,
    table_of,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

Open = Callable[[str, Sequence[str], Sequence[Any]], Iterator[pa.Table]]
"""Rows of a table of the store: its name, columns, and a bound (`plan.Bound`)."""
_READY_SECONDS = 60.0
_KINDS = {error.name: error for error in (BadAdql, QueryTooLarge, QueryFailed)}


class Query(NamedTuple):
    """A query and what it may take.

    Attributes
    ----------
    uploads
        The tables of TAP_UPLOAD, by name in lower case.
    rows
        Most rows of the result.
    seconds
        By the clock, from when a process takes it.
    """

    text: str
    uploads: Mapping[str, pa.Table]
    rows: int
    seconds: float


class Answer(NamedTuple):
    """The rows of the result, and whether there are more than the query might have."""

    rows: pa.Table
    overflow: bool


class QueryProcesses:
    """The processes; each runs one query at a time. Threads may share it.

    Parameters
    ----------
    memory
        Bytes that a process may take for a query.
    scanned
        Rows of tables that a query may read.
    """

    def __init__(self, memory: int, scanned: int) -> None:
        self._memory, self._scanned = memory, scanned
        self._idle: list[_Process] = []
        self._lock = threading.Lock()
        self._closed = False

    def run(
        self, query: Query, rows_of: Open, stopped: Callable[[], bool] = lambda: False
    ) -> Answer:
        """Run a query; blocks.

        Parameters
        ----------
        stopped
            Whether nobody wants the answer any more: asked every half second at least.

        Raises
        ------
        BadAdql, QueryTooLarge
            What is wrong with the query.
        QueryFailed
            The process ended for another reason.
        StoreDown
            The store does not answer.
        """
        with self._process() as process:
            return process.run(query, rows_of, stopped)

    def close(self) -> None:
        """End the processes that have nothing to do; the others with their query."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()

    @contextmanager
    def _process(self) -> Iterator["_Process"]:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or _Process(self._memory, self._scanned)
        try:
            yield process
        except (BadAdql, QueryTooLarge):
            raise
        except BaseException:
            process.kill()
            raise
        finally:
            with self._lock:
                keep = process.alive and not self._closed and not process.grown()
                if keep:
                    self._idle.append(process)
            if not keep:
                process.kill()


class _Process:
    """One process and its pipe."""

    def __init__(self, memory: int, scanned: int) -> None:
        import multiprocessing  # with the first query

        # Spawned, not forked: a fork would copy the event loop's threads in an arbitrary state.
        spawn = multiprocessing.get_context("spawn")
        self._memory, self._scanned = memory, scanned
        self.alive = True
        self._pipe: Connection
        self._pipe, other = spawn.Pipe()
        self._process: SpawnProcess = spawn.Process(
            target=run_queries, args=(other, memory, os.getpid()), daemon=True
        )
        try:
            self._process.start()
            other.close()
            if not self._pipe.poll(_READY_SECONDS) or self._pipe.recv_bytes() != READY:
                raise QueryFailed("no process for the query could be started: try again")
            self._resident = self._now_resident()
        except (OSError, EOFError) as error:
            self.alive = False
            raise QueryFailed(f"no process for the query could be started: {error}") from None

    def run(self, query: Query, rows_of: Open, stopped: Callable[[], bool]) -> Answer:
        """See `QueryProcesses.run`. After a failure that is not the query's it is not alive."""
        end = time.monotonic() + query.seconds
        limits = query.rows, self._scanned, self._memory // 2
        message = {"query": query.text, "uploads": [*query.uploads], "limits": limits}
        try:
            self._pipe.send_bytes(json.dumps(message).encode())
            for rows in query.uploads.values():
                self._pipe.send_bytes(ipc_bytes(rows))
            return self._answer(query, rows_of, end, stopped)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.kill()
            raise self._death() from None

    def _answer(
        self, query: Query, rows_of: Open, end: float, stopped: Callable[[], bool]
    ) -> Answer:
        chunks: Iterator[pa.Table] = iter(())
        while True:
            message = json.loads(self._receive(query, end, stopped))
            if "open" in message or "next" in message:
                if "open" in message:
                    chunks = rows_of(*message["open"])
                rows = next(chunks, None)
                self._pipe.send_bytes(b"" if rows is None else ipc_bytes(rows))
            elif "error" in message:
                name, text = message["error"]
                raise _KINDS[name](text)
            else:
                data = self._receive(query, end, stopped)
                return Answer(table_of(data), message["overflow"])

    def _receive(self, query: Query, end: float, stopped: Callable[[], bool]) -> bytes:
        """What the process sends next. Raises `QueryTooLarge` when the time is up."""
        while True:
            left = end - time.monotonic()
            if left > 0 and not stopped() and self._pipe.poll(min(0.5, left)):
                return self._pipe.recv_bytes()
            if left <= 0 or stopped():
                self.kill()
                raise QueryTooLarge(
                    f"the query took more than {query.seconds:g} s: name objects by object_id, "
                    "alerts by alert_id, or a cone; or send it to /tap/async, which has more time"
                )

    def grown(self) -> bool:
        """Whether it keeps so much memory of earlier queries that the next one has too little."""
        return self._now_resident() - self._resident > self._memory // 4

    def _now_resident(self) -> int:
        with open(f"/proc/{self._process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    def kill(self) -> None:
        """End the process."""
        self.alive = False
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _death(self) -> QueryTooLarge | QueryFailed:
        """Why the process died by itself."""
        status = self._process.exitcode
        if status == OUT_OF_MEMORY or status in (-6, -4, -11):  # no memory left, or no stack
            return QueryTooLarge(
                f"the query takes more than {self._memory >> 20} MB: ask for fewer rows or columns"
            )
        return QueryFailed(f"the process of the query ended (status {status}): try again")
