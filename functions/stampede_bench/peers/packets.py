"""What it takes to compress a packet, and to take a cutout out of a compressed one, alone."""

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from isal import igzip

from stampede_bench.figures import Figure
from stampede_bench.instruments.load import Load
from stampede_local.demo.oracle import read_record

COUNT = 100  # packets
LEVELS = (9, 6, 1)  # Python's gzip has 9 if none is given


def packet_figures(alerts: Load) -> Iterator[Figure]:
    """CPU time of this process, a packet."""
    messages = alerts.messages[:COUNT]
    subject = f"CPU of compressing a packet, {alerts.title}"
    for level in LEVELS:
        spent = milliseconds(partial(gzip.compress, compresslevel=level), messages)
        yield Figure(subject, f"gzip {level}, by zlib", spent, "ms/packet")
    spent = milliseconds(lambda one: igzip.compress(one, 1), messages)
    yield Figure(subject, "gzip 1, by ISA-L", spent, "ms/packet")
    bodies = [gzip.compress(message) for message in messages]
    spent = milliseconds(lambda one: read_record(gzip.decompress(one)), bodies)
    subject = "CPU of a client that takes a cutout out of a gzipped packet"
    yield Figure(subject, "gunzip, and decoding by fastavro", spent, "ms/packet")


def milliseconds(act: Callable[[bytes], object], items: Sequence[bytes]) -> float:
    """CPU time of an action on an item."""
    begin = time.process_time()
    for item in items:
        act(item)
    return 1e3 * (time.process_time() - begin) / len(items)
