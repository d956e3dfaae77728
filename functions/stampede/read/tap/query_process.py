"""The process that plans and runs queries: it sees the text of strangers, and no store.

It has neither keys nor settings. Rows come through the pipe, as `process.QueryProcess` sends them,
so nothing but the tables of `tables` can be reached. Messages are JSON, then Arrow's IPC streams:

========================================  =====================================================
message                                   what follows
========================================  =====================================================
``{"query", "uploads", "limits"}``        the uploaded tables; to this process
``{"open": [table, columns, bound]}``     from here; the answer is the first chunk of rows
``{"next": true}``                        from here; the next chunk is the answer, or no bytes
``{"error": [name, message]}``            from here; the end
``{"overflow": …}``                       from here; the result, then the end
========================================  =====================================================
"""

import ctypes
import gc
import json
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stampede.read.tap.errors import BadAdql, QueryFailed, QueryTooLarge

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from stampede.read.tap.engine import Result
    from stampede.read.tap.plan import Bound

READY = b"ready"
OUT_OF_MEMORY = 86
"""Exit status of a process that takes more memory than a query may."""
_PR_SET_PDEATHSIG = 1
_NICE = 5
_RESERVED = 4 << 30  # bytes of address space that allocators reserve beyond what they use


def run_queries(pipe: "Connection", memory: int, parent: int) -> None:
    """Answer the queries that come through `pipe`, until it is closed or process `parent` ends.

    Parameters
    ----------
    memory
        Bytes that the process may take besides what it takes at its start.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the line above
        return
    os.environ.clear()
    os.environ["TOKIO_WORKER_THREADS"] = "1"  # of DataFusion; others only spin
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import_module("stampede.read.tap.engine")  # not above: `read` imports this module
    gc.collect()
    gc.freeze()  # what is here now stays: a later collection need not look at it
    _limit_memory(memory)
    pipe.send_bytes(READY)
    while True:
        try:
            message = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        uploads = {name: table_of(pipe.recv_bytes()) for name in message["uploads"]}
        try:
            answered = _answer(pipe, message["query"], uploads, message["limits"])
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception as error:
            pipe.send_bytes(json.dumps({"error": _told(error)}).encode())
            continue
        pipe.send_bytes(json.dumps({"overflow": answered.overflow}).encode())
        pipe.send_bytes(ipc_bytes(answered.rows))


def _told(error: Exception) -> tuple[str, str]:
    """Name and message of an error. One that is no error of the query is a fault here."""
    if isinstance(error, BadAdql | QueryTooLarge):
        return error.name, error.message
    if isinstance(error, RecursionError):
        return BadAdql.name, "the query is nested too deeply"
    why = f"{type(error).__name__}: {str(error)[:200]}"
    return QueryFailed.name, f"the query cannot be planned, which is a fault here: {why}"


def _answer(
    pipe: "Connection", query: str, uploads: dict[str, pa.Table], limits: Sequence[int]
) -> "Result":
    from stampede.read.tap.engine import Engine, Limits
    from stampede.read.tap.plan import plan

    def read(table: str, columns: Sequence[str], bound: "Bound") -> Iterator[pa.Table]:
        pipe.send_bytes(json.dumps({"open": [table, columns, bound]}).encode())
        while data := pipe.recv_bytes():
            yield table_of(data)
            pipe.send_bytes(b'{"next": true}')

    schemas = {name: rows.schema for name, rows in uploads.items()}
    return Engine(plan(query, schemas), read, uploads, Limits(*limits)).run()


def ipc_bytes(rows: pa.Table) -> Any:
    """A table as an IPC stream of Arrow, a buffer."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def table_of(data: bytes) -> pa.Table:
    """The table that `ipc_bytes` wrote."""
    return pa.ipc.open_stream(data).read_all()


def _limit_memory(memory: int) -> None:
    """End this process when it takes more than `memory` bytes beyond what it has now.

    A watch looks at what is resident; a limit of the kernel holds what is taken between two looks.
    """
    used, address_space = _resident(), _address_space()
    most = address_space + memory + _RESERVED
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    threading.Thread(target=_watch, args=[used + memory], daemon=True).start()


def _watch(most: int) -> None:
    while True:
        if _resident() > most:
            os._exit(OUT_OF_MEMORY)
        time.sleep(0.02)


def _resident() -> int:
    return _pages(1)


def _address_space() -> int:
    return _pages(0)


def _pages(number: int) -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[number]) * resource.getpagesize()
