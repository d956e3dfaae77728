"""CPU time per alert of each stage of `thumbnails`, without a store."""

from collections.abc import Iterator

from stampede.images.thumbnail import thumbnails
from stampede.store.coverage import Coverage
from stampede.store.packs import read_rows, write_pack
from stampede.store.schema import THUMBNAIL_PACKS, THUMBNAILS
from stampede.store.versions import shown
from stampede_bench import load
from stampede_bench.decode import UNIT, batch_decoder, each_load, per_alert, run_of
from stampede_bench.figures import Context, Figure, Must
from stampede_bench.load import Load

MUST = Must("<=", 0.6)


def measure(context: Context) -> Iterator[Figure]:
    """A pack of each survey's alerts: simulated ones, and real ones if there are any."""
    count, rounds = context.scaled(300, 100, least=3), context.scaled(7, 3)
    loads = [load.simulated(survey, count, 10) for survey in ("lsst", "ztf")]
    if context.real:
        loads += load.real(context.real, count)
    yield from each_load(context, loads, "drawing", stages, rounds)


def stages(alerts: Load) -> Iterator[Figure]:
    """The figures of one round."""
    cutouts = batch_decoder().cutouts(alerts.messages).rows
    source = write_pack(cutouts, Coverage())
    count, laps = len(alerts.messages), {}
    laps["read"], (rows, coverage) = per_alert(lambda: read_rows(source.data, source.key), count)
    laps["draw"], drawn = per_alert(lambda: thumbnails(shown(rows, "fits")), count)
    laps["pack"], pack = per_alert(lambda: write_pack(drawn.rows, coverage, THUMBNAIL_PACKS), count)
    laps["index run"], _ = per_alert(lambda: run_of(THUMBNAILS, pack.locations, coverage), count)
    subject = f"thumbnails: {alerts.title}"
    for stage, spent in laps.items():
        yield Figure(subject, stage, spent, UNIT)
    yield Figure(subject, "all", sum(laps.values()), UNIT, must=MUST)
    yield Figure(subject, "stored", len(pack.data) / count / 1e3, "KB/alert")
