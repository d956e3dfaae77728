"""One S3 object an alert, written as cheaply as it can be: the floor of all who store so.

Nothing reads Kafka and nothing decodes. The keys are those of DMTN-183, so that Rubin's server
finds the alerts. zlib is Python's, the client is obstore, in Rust.
"""

import asyncio
import gzip
from collections.abc import Sequence

from obstore.store import S3Store

from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers
from stampede_bench.peers.meter import Meter, Spent

AT_ONCE = 16
USUAL = 9  # the level of Python's gzip
BEFORE = "an object an alert, compressed before"
LEVELS = {f"an object an alert, gzip {level}": level for level in (1, 6, USUAL)}
NOTE = "no Kafka, no decoding: from memory, 16 PUTs at a time by obstore."


def store(running: Servers, alerts: Load, level: int, bodies: Sequence[bytes], name: str) -> Spent:
    """Store each alert as an object: the bodies, or if there are none its message compressed."""
    bucket = open_bucket(running.settings(name))
    meter = Meter(running, bucket, {}, client=True)
    asyncio.run(put_all(running, alerts, level, bodies, name))
    return meter.end()


async def put_all(
    running: Servers, alerts: Load, level: int, bodies: Sequence[bytes], bucket: str
) -> None:
    """Put the bodies, or each message compressed when its turn comes."""
    keys = running.ceph.keys
    store = S3Store(
        bucket,
        endpoint=running.ceph.endpoint,
        region="us-east-1",
        access_key_id=keys.access_key,
        secret_access_key=keys.secret_key,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    free = asyncio.Semaphore(AT_ONCE)

    async def put(number: int) -> None:
        async with free:
            body = bodies[number] if bodies else gzip.compress(alerts.messages[number], level)
            await store.put_async(key(alerts.ids[number][0]), body, use_multipart=False)

    await asyncio.gather(*map(put, range(len(alerts.messages))))


def compressed(alerts: Load) -> list[bytes]:
    """Each message, as Python's gzip compresses it."""
    return [gzip.compress(message, USUAL) for message in alerts.messages]


def key(alert_id: int) -> str:
    """The key of an alert as DMTN-183 has it."""
    return f"v2/alerts/{str(alert_id)[:6]}/{alert_id}.avro.gz"
