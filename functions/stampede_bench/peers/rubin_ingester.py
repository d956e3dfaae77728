"""Rubin's alert database ingester: from Kafka one gzipped object an alert, by its own code."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from stampede.alerts.framing import built_in_schema
from stampede_bench.figures import Context
from stampede_bench.ingestion.ingest import fill, paused
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.gateway import Gateway
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers, pids
from stampede_bench.peers.checkout import Checkout
from stampede_bench.peers.meter import Meter, Spent, wait_for_puts
from stampede_local.kafka import make_topics
from stampede_local.process import Process

NOTE = (
    "changed: its Kafka consumer has PLAINTEXT in place of SASL, and a longer session. Its schema "
    "is in the bucket before it starts, as in an archive that runs: where its `store_schema` "
    "stores one, boto3 logs everything from then on. It stores the packet alone, no table."
)
_PROGRAM = Path(__file__).parent / "programs" / "rubin_ingester.py"


def store(
    context: Context,
    running: Servers,
    checkout: Checkout,
    alerts: Load,
    warm: Sequence[bytes],
    name: str,
) -> Spent:
    """Store the alerts, after those that `warm` the process. One process, as it comes."""
    assert running.kafka
    bucket = open_bucket(settings := running.settings(name))
    schemas = open_bucket(running.settings(f"{name}-schemas"))
    ids = {int.from_bytes(message[1:5], "big") for message in (*warm, *alerts.messages)}
    for schema_id in ids:
        text = json.dumps(built_in_schema(schema_id)).encode()
        schemas.put(f"v2/schemas/{schema_id}.json", text)
    make_topics(running.kafka.bootstrap, [name])
    fill(settings, name, warm)
    with registry() as address:
        process = Process(
            name,
            [
                *(checkout.python, str(_PROGRAM), "--kafka", running.kafka.bootstrap),
                *("--topic", name, "--endpoint", running.ceph.endpoint, "--alerts", name),
                *("--schemas", f"{name}-schemas", "--registry", address),
            ],
            context.scratch / f"{name}.log",
            checkout.environment | aws(running),
        )
        gateway = Gateway(running.ceph.gateway)
        process.start()
        try:
            wait_for_puts(gateway, len(warm), process)
            with paused([process]):
                fill(settings, name, alerts.messages)
                meter = Meter(running, bucket, {"the peer": pids([process])[name]})
            wait_for_puts(meter.gateway, len(alerts.messages), process)
            return meter.end()
        finally:
            process.stop()


def aws(running: Servers) -> dict[str, str]:
    """Variables from which AWS's clients take the keys and the region."""
    return {
        "AWS_ACCESS_KEY_ID": running.ceph.keys.access_key,
        "AWS_SECRET_ACCESS_KEY": running.ceph.keys.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextmanager
def registry() -> Iterator[str]:
    """The address of a schema registry that has the schemas of Rubin's alerts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            schema = built_in_schema(int(self.path.rpartition("/")[2]))
            body = json.dumps({"schema": json.dumps(schema)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
