"""Rubin's alert database server: a gzipped packet by the id of its alert, by its own code."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from stampede_bench.figures import Context
from stampede_bench.instruments.servers import Servers
from stampede_bench.peers.checkout import Checkout
from stampede_bench.peers.rubin_ingester import aws
from stampede_local.ports import free_port
from stampede_local.process import Process, answers, started

NOTE = (
    "unchanged. It answers with the gzipped packet: its client gunzips that, decodes it and takes "
    "the cutout out of it."
)


@contextmanager
def server(
    context: Context, running: Servers, checkout: Checkout, bucket: str
) -> Iterator[tuple[Process, str]]:
    """The server of a bucket, and its URL."""
    port = free_port()
    process = Process(
        "rubin-server",
        [
            *(checkout.python, "-c", "from alertdb.bin.alertdb import main; main()"),
            *("--listen-port", str(port), "--backend", "s3-remote"),
            *("--endpoint-url", running.ceph.endpoint),
            *("--bucket-alerts", bucket, "--bucket-schemas", bucket),
        ],
        context.scratch / "rubin-server.log",
        checkout.environment | aws(running),
    )
    url = f"http://127.0.0.1:{port}"
    with started(process, partial(answers, f"{url}/v1/health")):
        yield process, url


def path(alert_id: int) -> str:
    """Path of an alert."""
    return f"/v1/alerts/{alert_id}"
