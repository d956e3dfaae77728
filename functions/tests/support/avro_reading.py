"""What the tests read alerts with: fastavro, and nothing of the simulator."""

import io
from functools import cache

import fastavro

from stampede.alerts.schemas import parsed, rubin_schema


@cache
def rubin():
    return parsed(rubin_schema(1101))


def block_of(body: bytes) -> tuple[dict, bytes]:
    """Writer schema and record bytes of a container that holds one record."""
    if body[:4] != b"Obj\x01":  # which fastavro does not look at
        raise ValueError("no Avro container")
    (block,) = fastavro.block_reader(io.BytesIO(body))
    assert block.num_records == 1
    return block.writer_schema, block.bytes_.getvalue()


def decode(survey: str, body: bytes) -> dict:
    """The alert in a message, which must be whole and hold nothing else."""
    if survey == "lsst":
        assert body[:5] == b"\x00" + (1101).to_bytes(4, "big")
        schema, record = rubin(), body[5:]
    else:
        schema, record = block_of(body)
    stream = io.BytesIO(record)
    packet = fastavro.schemaless_reader(stream, schema)
    assert stream.read() == b"", "bytes are left over"
    return packet
