"""What the proof of a night costs: to make it, to make its revision, and to ask for one path.

The packs of the night have rows as those of Rubin's alerts, and packets of a few bytes, which no
proof reads. They lie in a folder. CPU times are those of all threads of this process, and of its
reads and writes of the folder; they are scaled to a night of 10^7 alerts.
"""

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import PACKET
from stampede.proofs.leaves import SUBTREE, WIDTH, ids_of
from stampede.proofs.proof_reader import ProofReader
from stampede.proofs.prover import Prover
from stampede.proofs.ranges import begins_of, digests_of, text_of
from stampede.proofs.signatures import SigningKey, make_key
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.packets import SMALL, write_packets
from stampede_bench.figures import Bound, Context, Figure
from stampede_bench.instruments.counting_store import CountingStore

NIGHT = 61_000
WHOLE = 10_000_000
PACK = 1000  # alerts
LATE = 20  # packs of alerts that come after the proof
CHEAP, BEARABLE = Bound("<=", 60.0), Bound("<=", 120.0)
"""What is asked, and what a machine of half the speed may take."""
SMALL_PATH = Bound("<=", 2000)
SMALL_COMPARISON = Bound("<=", 1e6)
FIRST_ALERT = 10**17


def measure(context: Context) -> Iterator[Figure]:
    """One night."""
    packs = context.scaled(1000, 200, least=LATE)
    alerts = packs * PACK
    with tempfile.TemporaryDirectory(prefix="stampede-proofs-") as folder:
        objects = CountingStore(DirectoryObjects(Path(folder)))
        context.progress(f"storing {alerts:,} alerts in {packs:,} packs")
        for number in range(packs):
            put_pack(objects, number)
        subject = f"the proof of a night, {alerts:,} alerts in packs of {PACK:,}"
        prover = Prover(objects, SigningKey(make_key(), "bench"), 1.0, None)
        context.progress("making its proof")
        objects.clear()
        seconds = cpu_of(prover)
        per_night = seconds * WHOLE / alerts
        yield Figure(subject, "made", per_night, "s CPU for 10^7", None, BEARABLE, target=CHEAP)
        yield Figure(subject, "read", objects.bytes["get"] / alerts, "B/alert")
        for number in range(packs, packs + LATE):
            put_pack(objects, number)
        late = cpu_of(prover) * WHOLE / alerts
        yield Figure(subject, "revised, after late alerts", late, "s CPU for 10^7")
        yield from _answers(objects, subject)


def _answers(objects: Objects, subject: str) -> Iterator[Figure]:
    """What a stranger receives: one path, and the comparison of two nights that differ in three."""
    reader = ProofReader(objects)
    proof = reader.latest("lsst", NIGHT)
    path = json.dumps(reader.of_alert(FIRST_ALERT, "lsst", NIGHT))
    yield Figure(subject, "a path", len(path), "B", None, SMALL_PATH)
    ours = proof.leaves(objects).read()
    theirs = np.delete(ours, [1, len(ours) // 2, len(ours) - 2], axis=0)
    begins = begins_of(ids_of(ours), SUBTREE)
    one, other = ([*digests_of([each], begins)] for each in (ours, theirs))
    unequal = sum(left != right for left, right in zip(one, other, strict=True))
    scale = WHOLE / len(ours)
    sent = scale * (len(text_of(begins)) + 32 * len(one)) + unequal * SUBTREE * WIDTH
    name = "compared with another that lacks three"
    yield Figure(subject, name, sent, "B for 10^7", None, SMALL_COMPARISON)


def cpu_of(prover: Prover) -> float:
    """CPU seconds of a pass."""
    began = time.process_time()
    assert len([*prover.make_pass(everything=True)]) == 1
    return time.process_time() - began


def put_pack(objects: Objects, number: int) -> None:
    """Store a pack: alerts of one survey, with ids and offsets in order."""
    offsets = np.arange(number * PACK, (number + 1) * PACK)
    ids = FIRST_ALERT + 37 * offsets
    known = {
        "alert_id": ids,
        "object_id": pa.array(ids).cast(pa.string()),
        "survey": pa.repeat("lsst", PACK),
        "mjd": NIGHT + np.linspace(0.1, 0.9, PACK),
        "topic": pa.repeat("bench@0", PACK),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), PACK),
        "offset": offsets,
        "sha256": pa.array([hashlib.sha256(str(one).encode()).digest() for one in ids.tolist()]),
    }
    columns = [
        pa.array(known[name]).cast(PACKET.field(name).type)
        if name in known
        else _any(PACKET.field(name))
        for name in SMALL
    ]
    rows = pa.table(columns, schema=pa.schema([PACKET.field(name) for name in SMALL]))
    spans = {("bench@0", 0): np.array([[number * PACK, (number + 1) * PACK]])}
    pack = write_packets(rows, [[b"packet"]] * PACK, Coverage(spans))
    objects.put(pack.key, memoryview(pack.data))


def _any(field: pa.Field) -> pa.Array:
    """Nulls, or zeros where a column has none."""
    if field.nullable:
        return pa.nulls(PACK, field.type)
    return pa.array([0] * PACK).cast(field.type)
