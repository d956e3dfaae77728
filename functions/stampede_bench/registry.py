"""Which benchmarks there are. One more is a module here with a `measure`, and a line below."""

from importlib import import_module

from stampede.errors import SetupError
from stampede_bench.figures import Measure

BENCHMARKS = {
    "decode": "CPU time per alert of each stage, beside fastavro's",
    "ingest": "alerts a second from Kafka to durable in both tables, and whose CPU that takes",
    "thumbnails": "CPU time per alert of drawing its thumbnail, by stage",
    "replicate": "MB/s to a second site at 0, 110 and 150 ms, HTTP and HTTPS, push and pull",
    "recover": "how fast what waited is stored when the store is back",
    "stress": "any S3 endpoint: what works, 1 to 1,000 clients, many objects",
    "read": "one item by id over HTTP, warm and cold, alone and beside large queries",
    "layout": "items of 15, 100 and 500 KB: files, objects, packs; written, overwritten, deleted",
    "pack-size": "bytes a second and latency of objects and packs of 4 KiB to 64 MiB",
    "limit": "bytes into packs beside plain PUTs of as many bytes",
    "lightcurve": "updates of light curves of 500 KB: rates, bytes written, compaction included",
    "space": "what is stored beside the cutouts themselves, and on erasure-coded disks",
    "growth": "look-ups, memory, start-up and compaction of tables of up to ten million alerts",
}

MODULES = {"limit": "pack_overhead"}  # where it is not called as its benchmark


def measure_of(name: str) -> Measure:
    """The benchmark of that name. Raises `SetupError` where there is none."""
    if name not in BENCHMARKS:
        raise SetupError(f"no benchmark {name!r}: there are {', '.join(BENCHMARKS)}")
    module = MODULES.get(name, name.replace("-", "_"))
    return import_module(f"stampede_bench.{module}").measure
