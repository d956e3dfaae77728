"""Fink's cutout service: a cutout out of a Parquet file of many alerts, by its own code."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq

from stampede_bench.figures import Context
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers
from stampede_bench.peers.checkout import Checkout
from stampede_bench.peers.rubin_ingester import aws
from stampede_local.demo.oracle import read_record
from stampede_local.ports import free_port
from stampede_local.process import Process, answers, started

BUCKET = "peers-fink"
NOTE = (
    "changed: S3 in place of HDFS. It gets the file's name with the request, from HBase, which is "
    "not measured. The file has the whole alerts, one row group, snappy as Spark's; a request "
    "reads the columns of a block. gunicorn has 2 workers of 8 threads, as its install page has."
)
_CONFIG = "HDFS: nowhere\nHDFSPORT: 0\nHDFSUSER: nobody\n"
_PROGRAMS = Path(__file__).parent / "programs"


def store(running: Servers, alerts: Load) -> float:
    """Store the alerts as one file; its MB."""
    table = pa.Table.from_pylist([read_record(message)[1] for message in alerts.messages])
    data = io.BytesIO()
    pq.write_table(table, data, row_group_size=table.num_rows, compression="snappy")
    bucket = open_bucket(running.settings(BUCKET))
    bucket.put(key(len(alerts.messages)), data.getvalue())
    return data.tell() / 1e6


def key(count: int) -> str:
    """The file of so many alerts."""
    return f"{count}.parquet"


@contextmanager
def server(context: Context, running: Servers, checkout: Checkout) -> Iterator[tuple[Process, str]]:
    """The service, and its URL."""
    folder = context.scratch / "fink"
    folder.mkdir()
    (folder / "config.yml").write_text(_CONFIG)
    address = f"127.0.0.1:{free_port()}"
    process = Process(
        "fink",
        [
            *(checkout.python, "-m", "gunicorn", "fink:app", "--bind", address),
            *("--workers", "2", "--threads", "8", "--chdir", str(folder)),
        ],
        context.scratch / "fink.log",
        aws(running)
        | {
            "PYTHONPATH": f"{_PROGRAMS}:{checkout.path}",
            "S3_ENDPOINT": running.ceph.endpoint,
        },
    )
    url = f"http://{address}"
    with started(process, partial(answers, f"{url}/api/v1/cutouts")):
        yield process, url


def path(count: int, alert: tuple[int, str]) -> str:
    """Path of the science cutout of an alert, by its id and its object's, as FITS."""
    asked = {
        "hdfsPath": f"{BUCKET}/{key(count)}",
        "candid": alert[0],
        "objectId": alert[1],
        "kind": "Science",
        "return_type": "FITS",
    }
    return f"/api/v1/cutouts?{urlencode(asked)}"
