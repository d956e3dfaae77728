"""Which benchmarks there are. To add one: a module with a `measure` in a folder, a line below."""

from importlib import import_module
from typing import NamedTuple

from stampede.errors import SetupError
from stampede_bench.figures import Measure


class Benchmark(NamedTuple):
    """A benchmark: its module in this package, and what it measures.

    One that is not `usual` runs only if it is named.
    """

    module: str
    title: str
    usual: bool = True


BENCHMARKS = {
    "decode": Benchmark("ingestion.decode", "CPU time per alert of each stage, beside fastavro's"),
    "ingest": Benchmark(
        "ingestion.ingest",
        "alerts a second from Kafka to durable in both tables, and CPU time by process",
    ),
    "visit": Benchmark(
        "visits.visit",
        "Rubin's visits, and single alerts: from Kafka until durable, until readable",
    ),
    "cost": Benchmark(
        "ingestion.cost", "CPU time, requests to S3 and bytes of a million alerts, of all processes"
    ),
    "thumbnails": Benchmark(
        "ingestion.thumbnails", "CPU time per alert of drawing its thumbnail, by stage"
    ),
    "replay": Benchmark(
        "ingestion.replay",
        "a night sent to Kafka again, beside a bare producer of the same messages",
    ),
    "replicate": Benchmark(
        "ingestion.replicate",
        "MB/s to a second site at 0 and 150 ms, HTTP and HTTPS, push and pull",
    ),
    "fetch": Benchmark(
        "ingestion.fetch",
        "CPU time and Kafka's bytes of alerts that are fetched once, or once for each table",
    ),
    "recover": Benchmark(
        "ingestion.recover", "how fast a backlog is stored after an outage of the store"
    ),
    "stress": Benchmark(
        "storage.stress", "any S3 endpoint: what works, 1 to 1,000 clients, many objects"
    ),
    "read": Benchmark(
        "reading.read", "one item by id over HTTP, warm and cold, alone and beside large queries"
    ),
    "cone": Benchmark(
        "reading.cone",
        "objects by position: small cones among up to 10^7, a large one, CPU time and bytes",
    ),
    "mine": Benchmark("reading.mine", "cutouts of a night as one array, from the bucket alone"),
    "layout": Benchmark(
        "storage.layout",
        "items of 15, 100 and 500 KB as files, objects and packs: written, overwritten, deleted",
    ),
    "space": Benchmark(
        "storage.space",
        "how much space cutouts take beside gzipped files, and on erasure-coded disks",
    ),
    "merging": Benchmark(
        "storage.merging",
        "what merged packets take, what merging costs, and to read one packet of them",
    ),
    "proofs": Benchmark(
        "storage.proofs", "what the proof of a night costs, and what a stranger receives of it"
    ),
    "scrub": Benchmark(
        "storage.scrub", "CPU time and requests of `scrub` for each GB that it reads"
    ),
    "growth": Benchmark(
        "growth.growth", "look-ups, memory, start-up and compaction of tables of up to 10^9 alerts"
    ),
    "peers": Benchmark(
        "peers.peers",
        "other systems' own code on the same Ceph and Kafka, with the same alerts (--peer)",
        usual=False,
    ),
    "starts": Benchmark("growth.decade", "starts of a process with ten years of alerts, 3 x 10^10"),
}
USUAL = [name for name, benchmark in BENCHMARKS.items() if benchmark.usual]


def measure_of(name: str) -> Measure:
    """The benchmark of that name.

    Raises `SetupError` if there is none, or if it needs a package that is not installed.
    """
    if name not in BENCHMARKS:
        raise SetupError(f"no benchmark {name!r}: there are {', '.join(BENCHMARKS)}")
    try:
        measure: Measure = import_module(f"stampede_bench.{BENCHMARKS[name].module}").measure
        return measure
    except ModuleNotFoundError as error:
        raise SetupError(f"{name} needs {error.name}, which is not installed here") from None
