"""What an alert truly holds, told by fastavro alone: slow, and independent of what it proves."""

import gzip
import io
from hashlib import blake2b
from typing import Any, NamedTuple

import fastavro

from stampede.alerts import schemas
from stampede.alerts.columns import KINDS
from stampede.alerts.container import MAGIC


class ExpectedAlert(NamedTuple):
    """Who an alert is, and a digest of each FITS file it carries."""

    survey: str
    alert_id: int
    object_id: str
    cutouts: dict[str, bytes]


def digest(fits: bytes) -> bytes:
    """Stands for the bytes of a FITS file."""
    return blake2b(fits, digest_size=16).digest()


def expected_alert(message: bytes) -> ExpectedAlert | None:
    """The truth about a message; None where it is no alert that could be stored."""
    try:
        if message[:4] == MAGIC:
            record: Any = next(fastavro.reader(io.BytesIO(message)))
        else:
            schema = schemas.rubin_schema(int.from_bytes(message[1:5], "big"))
            data = io.BytesIO(message[5:])
            record = fastavro.schemaless_reader(data, schemas.parsed(schema))
            if data.read(1):
                return None
        if "candidate" in record:
            sent = {kind: record[f"cutout{kind.title()}"] for kind in KINDS}
            fits = {k: gzip.decompress(c["stampData"]) for k, c in sent.items() if c}
            identity = ("ztf", record["candid"], record["objectId"])
        else:
            own = record["diaSource"]
            sent = {kind: record.get(f"cutout{kind.title()}") for kind in KINDS}
            fits = {kind: data for kind, data in sent.items() if data is not None}
            object_id = own["diaObjectId"] or own["ssObjectId"] or own["diaSourceId"]
            identity = ("lsst", own["diaSourceId"], str(object_id))
    except Exception:  # whatever is wrong with it, it will be a dead letter
        return None
    survey, alert_id, object_id = identity
    cutouts = {kind: digest(data) for kind, data in fits.items()}
    return ExpectedAlert(survey, alert_id, object_id, cutouts)
