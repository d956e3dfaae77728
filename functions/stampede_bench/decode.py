"""CPU time per alert of each stage of `cutouts` and `lightcurves`, beside fastavro's.

In this process, without a store: what a worker does between a batch of bodies and the bytes it
puts. Times are of all threads (`time.process_time`), so a busy machine matters less.
"""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import fastavro
import pyarrow as pa
from isal import igzip

from stampede.alerts.batch_decoder import BatchDecoder, Decoded
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framed, Framing, WriterSchema
from stampede.alerts.image_tokens import ImageTokens
from stampede.alerts.surveys import rubin
from stampede.settings import Settings
from stampede.store.coverage import Coverage
from stampede.store.memory import MemoryObjects
from stampede.store.packs import write_pack
from stampede.store.raw import write_raw
from stampede.store.tables import CUTOUTS, DETECTIONS, Table, TableSpec
from stampede_bench import load
from stampede_bench.figures import Context, Figure, Must, Rival, over_rounds
from stampede_bench.load import Load

MUST_MS = 0.8  # of each function, per LSST alert
# What it takes to have a batch's wanted columns, in units of what fastavro takes for its records.
MUST_DECODE, AIM_DECODE = Must("<=", 1 / 6, ratio=True), Must("<=", 1 / 15, ratio=True)
HISTORY, SHORT_HISTORY = 235, 180  # rows: alerts of about 176 and 87 KB
UNIT = "ms CPU/alert"
READ = "framing, lifting and decode"


def measure(context: Context) -> Iterator[Figure]:
    """The stages of both functions on every load."""
    count = context.scaled(300, 200, least=3)
    rounds = context.scaled(7, 3, least=1)
    for each in loads(context, count):
        context.progress(f"decoding {len(each.messages)} {each.title}, {rounds} times")
        list(stages(each))  # memory is had from the kernel once
        yield from over_rounds([list(stages(each)) for _ in range(rounds)])


def loads(context: Context, count: int) -> Iterator[Load]:
    """What is decoded: simulated alerts of both surveys, real ones where there are any."""
    yield load.simulated("lsst", count, HISTORY)
    yield load.short_cutouts(count, SHORT_HISTORY)
    yield load.simulated("ztf", count, 60)
    if context.real:
        yield from load.real(context.real, count)


def stages(given: Load) -> Iterator[Figure]:
    """One round."""
    count = len(given.messages)
    whole = b"".join(given.messages)  # as a worker has them: views of one map
    messages, at = [], 0
    for message in given.messages:
        messages.append(memoryview(whole)[at : at + len(message)])
        at += len(message)
    framing, decoder = Framing(Settings().max_alert_bytes), TimedDecoder(Settings().spool)
    reader = BatchDecoder(framing, decoder, lambda: float("inf"))
    coverage = Coverage.of({("bench", 0): list(range(count))})
    reader.cutouts(messages)  # the first batch pays for the schema, and for the spool's memory
    schema = framing.take(messages[0]).schema
    records = [bytes(framing.take(message).record) for message in messages[: max(3, count // 4)]]
    must = Must("<=", MUST_MS) if given.survey == "lsst" else None
    slow = per_alert(lambda: fastavro_all(schema, records), len(records))[0]

    def figures(
        name: str, read: Callable[[Sequence], Decoded], rest: dict[str, Callable]
    ) -> Iterator[Figure]:
        decoder.spent = 0.0
        reading, result = per_alert(lambda: read(messages), count)
        # Done once more, as asking for the time at each alert would take as long as the work.
        taken, framed = per_alert(lambda: [framing.take(message) for message in messages], count)
        lifted, _ = per_alert(lambda: lift(framed), count)
        laps = {"framing": taken, "lifting": lifted, "decode": 1e3 * decoder.spent / count}
        wanted = sum(laps.values())
        laps["normalise"] = reading - wanted
        if name == "cutouts" and given.survey == "lsst":
            fits = [igzip.decompress(data) for data in result.rows["fits"].to_pylist() if data]
            laps["gzip"], _ = per_alert(lambda: [rubin.compress(each) for each in fits], count)
            laps["normalise"] -= laps["gzip"]
        for stage, work in rest.items():
            laps[stage], result = per_alert(partial(work, result), count)
        few = narrowed(schema, decoder.asked)
        projected, _ = per_alert(lambda: fastavro_some(schema, few, records), len(records))
        subject = f"{name}: {given.title}"
        for stage, lap in laps.items():
            beside = Rival("fastavro, projected", projected) if stage == "decode" else None
            yield Figure(subject, stage, lap, UNIT, beside)
        rival = Rival("fastavro, whole record, and nothing else", slow)
        yield Figure(subject, READ, wanted, UNIT, rival, MUST_DECODE, None, AIM_DECODE)
        yield Figure(subject, "all", sum(laps.values()), UNIT, rival, must)

    def points(decoded: Decoded) -> Decoded:
        run_of(DETECTIONS, decoded.rows, coverage)
        return decoded

    yield from figures(
        "cutouts",
        reader.cutouts,
        {
            "pack": lambda decoded: write_pack(decoded.rows, coverage),
            "index run": lambda pack: run_of(CUTOUTS, pack.places, coverage),
        },
    )
    yield from figures(
        "lightcurves",
        reader.detections,
        {
            "sort and run": points,
            "alerts as sent": lambda decoded: [write_raw(alerts) for alerts in decoded.raw],
        },
    )


class TimedDecoder(Decoder):
    """A decoder that knows how long it took, and for which columns."""

    spent = 0.0
    asked: Sequence[str] = ()

    def decode(self, schema, records, columns):
        """As `Decoder.decode`."""
        self.asked = columns
        begin = time.process_time()
        try:
            return super().decode(schema, records, columns)
        finally:
            self.spent += time.process_time() - begin


def lift(framed: Sequence[Framed]) -> None:
    """Lift the images of a batch, and give them back."""
    lifting = ImageTokens(framed[0].schema.survey)
    pieces = [lifting.lift(record) for _, record in framed]
    tokens = [piece[1:] for each in pieces for piece in each[1::2]]  # without their length
    lifting.give_back({"all": [*map(bytes, tokens)]})


def per_alert(work: Callable[[], Any], count: int) -> tuple[float, Any]:
    """Milliseconds of CPU time for each of `count` alerts, and what came of it."""
    begin = time.process_time()
    result = work()
    return 1e3 * (time.process_time() - begin) / count, result


def run_of(spec: TableSpec, rows: pa.Table, coverage: Coverage) -> str:
    """Write a run, into memory."""
    return Table(MemoryObjects(), spec, threads=1).append(rows, coverage)


def narrowed(schema: WriterSchema, columns: Sequence[str]) -> dict:
    """The reader schema of only these columns, ``a`` or ``a.b``."""
    fields = []
    for field in schema.parsed["fields"]:
        inner = [name.split(".")[1] for name in columns if name.startswith(f"{field['name']}.")]
        if field["name"] in columns:
            fields.append(field)
        elif inner:
            kept = [each for each in field["type"]["fields"] if each["name"] in inner]
            fields.append({**field, "type": {**field["type"], "fields": kept}})
    named = {"type": "record", "name": schema.parsed["name"], "fields": fields}
    return cast(dict, fastavro.parse_schema(named, _force=True))


def fastavro_all(schema: WriterSchema, records: Sequence[bytes]) -> None:
    """Read records whole."""
    for record in records:
        fastavro.schemaless_reader(io.BytesIO(record), schema.parsed)


def fastavro_some(schema: WriterSchema, reader_schema: dict, records: Sequence[bytes]) -> None:
    """Read some fields of records."""
    for record in records:
        fastavro.schemaless_reader(io.BytesIO(record), schema.parsed, reader_schema)
