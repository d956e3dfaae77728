"""Alerts stored by both functions, as their workers store a batch."""

from collections.abc import Sequence

from stampede.events.envelope import Envelope
from stampede.events.event import Position
from stampede.events.worker import Batch
from stampede.functions import cutouts, lightcurves
from stampede.settings import Settings

TOPIC = "alerts@0"


def store(
    settings: Settings,
    messages: Sequence[bytes],
    first: int = 0,
    envelopes: Sequence[Envelope] = (),
    functions: Sequence = (cutouts, lightcurves),
    partition: int = 0,
) -> None:
    """Store messages as one batch, whose offsets begin at `first`; all must be accepted."""
    whole = memoryview(b"".join(messages))
    views, begin = [], 0
    for message in messages:  # as a worker gets them: views of one file
        views.append(whole[begin : begin + len(message)])
        begin += len(message)
    positions = [Position(TOPIC, partition, first + number) for number in range(len(messages))]
    for function in functions:
        stored = function.make_batch_storer(settings)(
            Batch(views, positions, envelopes=list(envelopes))
        )
        assert stored.outcomes == [None] * len(messages)
