"""Batch storers for the tests of the workers: a message names the fate of its batch.

This module imports only what a worker needs, so that a worker starts quickly.
"""

import ctypes
import os
import re
import signal
import time
from pathlib import Path

from stampede.alerts.isolation import Isolation
from stampede.config.settings import Settings
from stampede.errors import DecoderFailed, SetupError, StampedeError, StoreDown, Undecodable
from stampede.events.workers.worker import Batch, BatchStorer, StoredBatch, deadline


def make(settings: Settings) -> BatchStorer:
    """Records each batch and each stored message, in the directory in the setting `store`."""
    notes = Path(settings.store)

    def note(name: str, text: str) -> None:
        with (notes / name).open("a") as file:
            file.write(text + "\n")

    def store_batch(batch: Batch) -> StoredBatch:
        messages = [bytes(message) for message in batch.messages]
        note("batches", f"{len(messages)} {batch.isolation.value} {os.getpid()}")
        outcomes: list[StampedeError | None] = [
            Undecodable("bad") if m == b"bad" else None for m in messages
        ]
        for number, message in enumerate(messages):
            if batch.isolation is not Isolation.FAST:
                batch.suspect([number])
            fate(message, batch.isolation, settings)
        batch.suspect([])  # as a decoder that has read all
        if b"late" in messages:
            raise KeyError("a bug behind the decoder")
        for message, place in zip(messages, batch.stored_positions(outcomes), strict=False):
            note("stored", f"{message.decode()} {place.offset if place else None}")
        return StoredBatch(outcomes, {"decode": 0.5}, 100)

    return store_batch


def fail_to_make(settings: Settings) -> BatchStorer:
    raise SetupError("no such store")


def fate(message: bytes, isolation: Isolation, settings: Settings) -> None:
    """What a message does to its worker."""
    match message:
        case b"spin":
            with deadline(0.3):
                spin()
        case b"exit":
            os._exit(7)
        case b"segfault":
            ctypes.string_at(0)
        case b"memory":
            hoard = []
            while True:
                hoard.append(bytes(range(256)) * (1 << 14))
                time.sleep(0.001)
        case b"decoder":
            raise DecoderFailed("a value cannot be read")
        case b"careless" if isolation is Isolation.FAST:
            raise DecoderFailed("fewer rows than records")
        case b"bug":
            raise KeyError("a bug")
        case b"killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"knot":
            try:
                raise OSError("a request that is made again")
            except OSError as error:
                kept = error  # by this frame, which the error keeps
                del error
            assert kept
        case b"litter":
            (settings.spool / "x.avro").write_bytes(bytes(1000))
            os._exit(7)
        case b"down":
            raise StoreDown("away")
        case b"slow":
            time.sleep(100)


def spin() -> None:
    """A native call that never returns and holds the GIL."""
    re.match(r"(a+)+$", "a" * 60 + "b")
