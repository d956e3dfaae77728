"""Cutouts by the thousand straight from the bucket: `stampede_client.images` of one night.

Beside it, what any reader of these packs has to do: Arrow's Parquet reader, then gzip of the
survey's own files. That leaves FITS files in memory, where `images` leaves an array of pixels.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, process_time
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip
from pyarrow.fs import FileSelector, S3FileSystem

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, over_rounds
from stampede_bench.ingestion.decode import batch_decoder
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import servers
from stampede_bench.reading.images import seconds
from stampede_client import images
from stampede_client.image_planes import THREADS

REQUIREMENT, TARGET = Bound(">=", 0.45, ratio=True), Bound(">=", 20_000.0)
NIGHT = 61_000
DISTINCT = 300  # alerts; all packs repeat them under other ids
ROUNDS = 3
AT_ONCE = 4  # packs


def measure(context: Context) -> Iterator[Figure]:
    """Each survey's cutouts in the same Ceph, one survey after the other."""
    count = context.scaled(60_000, 21_000, least=300)
    alerts = min(DISTINCT, count // 3)
    with servers(context, kafka=False) as running:
        settings = running.settings("bench-mine")
        bucket = open_bucket(settings)
        for made in (load.simulated("ztf", alerts, 0), load.exposures(3, alerts // 3)):
            context.progress(f"storing {count:,} cutouts of {made.title}")
            fill(bucket, made, count)
            yield from over_rounds([list(reading(settings, made, count)) for _ in range(ROUNDS)])
            clear(bucket)


def fill(objects: Objects, made: Load, count: int) -> None:
    """Store so many cutouts of one night, each alert under many ids."""
    rows = batch_decoder().cutouts(made.messages).rows
    rows = rows.set_column(
        rows.column_names.index("mjd"), "mjd", pa.array(np.full(rows.num_rows, float(NIGHT)))
    )
    ids, table = rows["alert_id"].to_numpy(), Table(objects, CUTOUTS, threads=1)

    def store(number: int) -> None:
        coverage = Coverage.of({("bench", 0): [number]})
        some = rows.set_column(0, "alert_id", pa.array(ids + number * 10**9))
        pack = write_pack(some.slice(0, count - number * rows.num_rows), coverage)
        objects.put(pack.key, memoryview(pack.data), pack.sha256)
        table.append(pack.locations, coverage)

    seconds(store, range(-(-count // rows.num_rows)), AT_ONCE)
    table.close()


def reading(settings: Settings, made: Load, count: int) -> Iterator[Figure]:
    """Cutouts a second, from the listing of the table to the last pixel, and CPU time of each."""
    url = urlsplit(settings.store)
    filesystem = S3FileSystem(
        access_key=settings.access_key,
        secret_key=settings.secret_key.get_secret_value(),
        endpoint_override=url.netloc,
        scheme=url.scheme,
        region=settings.region,
    )
    bucket = url.path.strip("/")
    begin, cpu = perf_counter(), process_time()
    found = images(bucket, filesystem, night=NIGHT, size=63)
    spent, cpu = perf_counter() - begin, process_time() - cpu
    if len(found.planes) != count:
        raise StampedeError(f"the bucket gives {len(found.planes):,} of {count:,} cutouts")
    del found  # gigabytes
    limit = Rival("FITS files, by Arrow and igzip", count / unpacking(bucket, filesystem))
    what = f"{made.survey.upper()}, {count:,} cutouts as one array"
    yield Figure(
        "images from the bucket", what, count / spent, "/s", limit, REQUIREMENT, None, TARGET
    )
    yield Figure("images from the bucket", f"{what}: CPU time of each", 1e6 * cpu / count, "us")


def unpacking(bucket: str, filesystem: S3FileSystem) -> float:
    """Seconds until all files of the night are in memory unpacked, in as many threads.

    Without the tails that alerts share: `images` reads those too, to compare each file's CRC-32.
    """

    def unpacked(path: str) -> list[bytes]:
        pack = pq.read_table(path, columns=["fits"], filesystem=filesystem, use_threads=False)
        return [
            igzip.decompress(file) if file.startswith(b"\x1f\x8b") else file
            for file in pack["fits"].to_pylist()
        ]

    begin = perf_counter()
    listed = filesystem.get_file_info(FileSelector(f"{bucket}/packs/{NIGHT}"))
    with ThreadPoolExecutor(THREADS) as pool:
        kept = [*pool.map(unpacked, [info.path for info in listed])]
        spent = perf_counter() - begin
    del kept  # not before: freeing takes time too
    return spent
