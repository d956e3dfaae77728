"""A batch storer that stores nothing: it compares each alert's rows with fastavro's."""

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.events.workers.batching import Outcome
from stampede.events.workers.worker import Batch, BatchStorer, StoredBatch
from stampede.handlers.decoding import make_batch_decoder
from stampede_local.demo import oracle
from tests.support.alerts.oracle_comparison import assert_same_rows


def make(settings: Settings) -> BatchStorer:
    decoder = make_batch_decoder(settings)

    def store_batch(batch: Batch) -> StoredBatch:
        both = decoder.alerts(batch.messages, batch.isolation, batch.suspect)
        outcomes = []
        for number, message in enumerate(batch.messages):
            fault: Outcome = both.cutouts.faults[number] or both.detections.faults[number]
            outcomes.append(fault or compare(decoder, bytes(message)))
        return StoredBatch(outcomes, {}, 0)

    return store_batch


def compare(decoder: BatchDecoder, message: bytes) -> Outcome:
    """None if the decoder alone, and the oracle, find the same rows and images in a message."""
    images, points = decoder.cutouts([message]), decoder.detections([message])
    try:
        survey, record = oracle.read_record(message)
        assert_same_rows(points.rows.to_pylist(), oracle.detections(message))
        for row in images.rows.to_pylist():
            assert row["fits"] == sent(survey, record[f"cutout{row['kind'].title()}"])
    except Exception as error:
        return StampedeError(f"differs: {error!r}")
    return None


def sent(survey: str, field: object) -> bytes | None:
    """The file of a cutout in an alert."""
    if field is None or isinstance(field, bytes):
        return field
    assert survey == "ztf"
    return dict(field)["stampData"] or None  # type: ignore[call-overload]
