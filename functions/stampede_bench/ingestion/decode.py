"""CPU time per alert of each stage of `cutouts` and `lightcurves`, beside fastavro's.

It runs in this process without a store: a worker's work from a batch of bodies to the bytes that it
stores. Times are CPU times of all threads (`time.process_time`), so a busy machine matters less.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import fastavro
import pyarrow as pa

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.batch_parts import Decoded
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framed, Framing, WriterSchema
from stampede.alerts.image_tokens import ImageTokens
from stampede.config.settings import Settings
from stampede.handlers.decoding import DecoderFile
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.packs.raw_alerts import write_raw
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TableSpec
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, over_rounds
from stampede_bench.instruments import load
from stampede_bench.instruments.load import Load

REQUIREMENT_MS = 0.8  # of each function, per LSST alert
# Time to decode the needed columns of a batch, in units of fastavro's time for whole records.
REQUIREMENT_DECODE, TARGET_DECODE = Bound("<=", 1 / 6, ratio=True), Bound("<=", 1 / 15, ratio=True)
SHORT_HISTORY = 180  # rows: alerts of about 120 KB
UNIT = "ms CPU/alert"
SECRET = bytes(12)  # no sender is here to guess it
READ = "framing, image tokens and decode"


def measure(context: Context) -> Iterator[Figure]:
    """The stages of both functions on every load."""
    count = context.scaled(300, 200, least=3)
    rounds = context.scaled(5, 3, least=1)
    yield from each_load(context, loads(context, count), "decoding", stages, rounds)


def batch_decoder(framing: Framing | None = None, decoder: Decoder | None = None) -> BatchDecoder:
    """A decoder of batches as the functions have it, with no bound on its time."""
    settings = Settings()
    framing = framing or Framing(settings.max_alert_bytes)
    decoder = decoder or Decoder(DecoderFile(settings.spool))
    return BatchDecoder(framing, decoder, lambda: float("inf"), SECRET)


def each_load(
    context: Context,
    loads: Iterable[Load],
    doing: str,
    stages: Callable[[Load], Iterator[Figure]],
    rounds: int,
) -> Iterator[Figure]:
    """The figures of `stages`, which is one round, for each load over several rounds."""
    for alerts in loads:
        context.progress(f"{doing} {len(alerts.messages)} {alerts.title}, {rounds} times")
        list(stages(alerts))  # warm up: the kernel gives memory once
        yield from over_rounds([list(stages(alerts)) for _ in range(rounds)])


def loads(context: Context, count: int) -> Iterator[Load]:
    """The alerts to decode: simulated ones of both surveys, and real ones if there are any."""
    for rows in (load.LSST_HISTORY, load.LONG_LSST_HISTORY):
        yield load.simulated("lsst", count, rows)
    yield load.short_cutouts(count, SHORT_HISTORY)
    yield load.simulated("ztf", count, 60)
    if context.real:
        yield from load.real(context.real, count)


def stages(alerts: Load) -> Iterator[Figure]:
    """The figures of one round."""
    count = len(alerts.messages)
    messages = views_of_one_buffer(alerts.messages)
    framing = Framing(Settings().max_alert_bytes)
    decoder = TimedDecoder(DecoderFile(Settings().spool))
    reader = batch_decoder(framing, decoder)
    coverage = Coverage.of({("bench", 0): list(range(count))})
    reader.cutouts(messages)  # warm up: the first batch compiles the schema and allocates the spool
    schema = framing.take(messages[0]).schema
    records = [bytes(framing.take(message).record) for message in messages[: max(3, count // 4)]]
    requirement = Bound("<=", REQUIREMENT_MS) if alerts.survey == "lsst" and alerts.usual else None
    slow = per_alert(lambda: fastavro_all(schema, records), len(records))[0]

    def figures(
        name: str,
        decode: Callable[[Sequence[Any]], Decoded],
        later_stages: dict[str, Callable[..., Any]],
    ) -> Iterator[Figure]:
        decoder.spent = 0.0
        decoding, result = per_alert(lambda: decode(messages), count)
        laps = first_stages(framing, messages) | {"decode": 1e3 * decoder.spent / count}
        needed = sum(laps.values())
        laps["normalise"] = decoding - needed
        for stage, work in later_stages.items():
            laps[stage], result = per_alert(partial(work, result), count)
        few = narrowed(schema, decoder.columns)
        projected, _ = per_alert(lambda: fastavro_projected(schema, few, records), len(records))
        subject = f"{name}: {alerts.title}"
        for stage, lap in laps.items():
            beside = Rival("fastavro, projected", projected) if stage == "decode" else None
            yield Figure(subject, stage, lap, UNIT, beside)
        rival = Rival("fastavro, whole record, and nothing else", slow)
        yield Figure(subject, READ, needed, UNIT, rival, REQUIREMENT_DECODE, None, TARGET_DECODE)
        yield Figure(subject, "all", sum(laps.values()), UNIT, rival, requirement)

    def points(decoded: Decoded) -> Decoded:
        run_of(DETECTIONS, decoded.rows, coverage)
        return decoded

    yield from figures(
        "cutouts",
        reader.cutouts,
        {
            "pack": lambda decoded: write_pack(decoded.rows, coverage),
            "index run": lambda pack: run_of(CUTOUTS, pack.locations, coverage),
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


def first_stages(framing: Framing, messages: Sequence[memoryview]) -> dict[str, float]:
    """CPU time per alert of the stages before DataFusion.

    They are repeated alone: reading the clock at each alert would take as long as the work itself.
    """
    count = len(messages)
    taken, framed = per_alert(lambda: [framing.take(message) for message in messages], count)
    replaced, _ = per_alert(lambda: replace_and_restore(framed), count)
    return {"framing": taken, "image tokens": replaced}


def views_of_one_buffer(messages: Sequence[bytes]) -> list[memoryview]:
    """The messages as a worker has them, as views of one memory map."""
    buffer, views, offset = memoryview(b"".join(messages)), [], 0
    for message in messages:
        views.append(buffer[offset : offset + len(message)])
        offset += len(message)
    return views


class TimedDecoder(Decoder):
    """A decoder that records its CPU time and the columns of the last batch."""

    spent = 0.0
    columns: Sequence[str] = ()

    def decode(
        self,
        schema: WriterSchema,
        records: Sequence[Sequence[bytes | memoryview]],
        columns: Sequence[str],
    ) -> pa.Table:
        """See `Decoder.decode`."""
        self.columns = columns
        begin = time.process_time()
        try:
            return super().decode(schema, records, columns)
        finally:
            self.spent += time.process_time() - begin


def replace_and_restore(framed: Sequence[Framed]) -> None:
    """Replace the images of a batch by tokens, and restore them."""
    tokens = ImageTokens(framed[0].schema.survey.IMAGE_MAGIC, SECRET)
    pieces = [tokens.replace(record) for _, record in framed]
    values = [token[1:] for record in pieces for token in record[1::2]]  # without their length
    tokens.restore({"all": [*map(bytes, values)]})


def per_alert(work: Callable[[], Any], count: int) -> tuple[float, Any]:
    """Milliseconds of CPU time per alert for `count` alerts, and the result."""
    begin = time.process_time()
    result = work()
    return 1e3 * (time.process_time() - begin) / count, result


def run_of(spec: TableSpec, rows: pa.Table, coverage: Coverage) -> str:
    """Write a run into memory."""
    return Table(MemoryObjects(), spec, threads=1).append(rows, coverage)


def narrowed(schema: WriterSchema, columns: Sequence[str]) -> dict[str, Any]:
    """The reader schema with only these columns, ``a`` or ``a.b``."""
    fields = []
    for field in schema.parsed["fields"]:
        inner = [name.split(".")[1] for name in columns if name.startswith(f"{field['name']}.")]
        if field["name"] in columns:
            fields.append(field)
        elif inner:
            chosen = [item for item in field["type"]["fields"] if item["name"] in inner]
            fields.append({**field, "type": {**field["type"], "fields": chosen}})
    named = {"type": "record", "name": schema.parsed["name"], "fields": fields}
    return cast(dict[str, Any], fastavro.parse_schema(named, _force=True))


def fastavro_all(schema: WriterSchema, records: Sequence[bytes]) -> None:
    """Read whole records."""
    for record in records:
        fastavro.schemaless_reader(io.BytesIO(record), schema.parsed)  # noqa: TID251


def fastavro_projected(
    schema: WriterSchema, reader_schema: dict[str, Any], records: Sequence[bytes]
) -> None:
    """Read only the fields of `reader_schema`."""
    for record in records:
        fastavro.schemaless_reader(io.BytesIO(record), schema.parsed, reader_schema)  # noqa: TID251
