"""How the functions that take alerts read them, inside a worker."""

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.alerts.schemas import SchemaRegistry
from stampede.clock import now_mjd
from stampede.events.worker import deadline
from stampede.settings import Settings

SLOWEST = 5e6  # bytes a second that decoding makes on the worst of machines, a fiftieth of usual


def make_reader(settings: Settings) -> BatchDecoder:
    """A reader whose decoder is killed, worker and all, when it overruns its deadline."""
    registry = SchemaRegistry(settings.schema_registry).schema if settings.schema_registry else None
    return BatchDecoder(
        Framing(settings.max_alert_bytes, registry),
        Decoder(settings.spool, lambda size: deadline(settings.decode_seconds + size / SLOWEST)),
        latest_mjd=lambda: now_mjd() + settings.future_days,
    )
