"""Alerts stored by both functions, as their workers store a batch."""

from collections.abc import Sequence

from stampede.config.settings import Settings
from stampede.events.cloudevents.envelope import Envelope
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede_bench.ingestion.decode import views_of_one_buffer
from tests.support.alerts import made_alerts
from tests.support.alerts.fits_files import ztf_source

TOPIC = "alerts@0"
FIELDS = ("cutoutScience", "cutoutTemplate", "cutoutDifference")


def ztf_with_images(candid: int, mjd: float) -> bytes:
    """A ZTF alert of that time (MJD UTC) with three images of its own."""
    images = {
        name: {"fileName": name, "stampData": ztf_source(candid + seed)}
        for seed, name in enumerate(FIELDS)
    }
    candidate = made_alerts.ztf_record(candid)["candidate"] | {"jd": 2400000.5 + mjd}
    return made_alerts.ztf_alert(candid, candidate=candidate, **images)


def store(
    settings: Settings,
    messages: Sequence[bytes],
    first: int = 0,
    envelopes: Sequence[Envelope] = (),
    functions: Sequence = (cutouts, lightcurves),
    partition: int = 0,
) -> None:
    """Store messages as one batch, whose offsets begin at `first`; all must be accepted."""
    plain = [Envelope(record="")] * len(messages)
    views = views_of_one_buffer(messages)
    positions = [Position(TOPIC, partition, first + number) for number in range(len(messages))]
    for function in functions:
        stored = function.make_batch_storer(settings)(
            Batch(views, positions, envelopes=list(envelopes or plain))
        )
        assert stored.outcomes == [None] * len(messages)
