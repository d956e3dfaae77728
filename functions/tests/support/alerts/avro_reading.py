"""Reads alerts with the oracle: fastavro, and nothing of the simulator."""

import io

import fastavro

from stampede_local.demo.oracle import read_record


def decode(survey: str, body: bytes) -> dict:
    """The alert in a message, which must be whole and hold nothing else."""
    if survey == "lsst":
        assert body[:5] == b"\x00" + (1101).to_bytes(4, "big")
    found, record = read_record(body)
    assert found == survey
    return record


def records(message: bytes) -> list[dict]:
    """The records of a container."""
    found: list[dict] = [*fastavro.reader(io.BytesIO(message))]
    return found
