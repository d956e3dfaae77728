"""A night sent again, as `stampede replay` sends it, beside a bare producer of the same messages.

Both send to a new topic of the same Kafka with the same options, in turn, and each round begins
with the other one: the second finds a warmer Kafka. The bare producer has the messages in memory,
so it is the limit of Kafka and of its client on this machine.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from stampede.config.settings import Settings
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.handlers.replay.kafka_sender import OPTIONS, send
from stampede.handlers.replay.messages import Replayed
from stampede.handlers.replay.night import Night
from stampede.store.packs.pack_name import night_of
from stampede_bench.figures import Bound, Context, Figure, Rival, over_rounds
from stampede_bench.ingestion.decode import views_of_one_buffer
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.servers import servers
from stampede_local.kafka import make_topics

HISTORY = {"lsst": 57, "ztf": 60}  # rows
BATCH = 300  # alerts in a pack
REQUIREMENT = Bound(">=", 0.7, ratio=True)
TARGET = Bound(">=", 2000.0)  # alerts a second
FLUSH_SECONDS = 120.0


class Sent(NamedTuple):
    """What sending took: alerts a second, and CPU milliseconds of an alert."""

    rate: float
    cpu: float


def measure(context: Context) -> Iterator[Figure]:
    """Each survey alone, several rounds."""
    with servers(context, kafka=True) as running:
        for survey, rows in HISTORY.items():
            settings = running.settings(f"bench-replay-{survey}")
            alerts = load.simulated(survey, context.scaled(3000, 1500, least=20), rows)
            context.progress(f"storing {len(alerts.messages):,} {alerts.title}")
            night = stored(settings, alerts.messages)
            messages = [each.message for each in whole(settings, night)]
            context.progress(f"sending {len(messages):,} of them again")
            topics = (f"replay-{survey}-{number}" for number in count())
            one_round(settings, night, messages, topics)  # Java compiles what is used often
            rounds = [
                one_round(settings, night, messages, topics, bare_first=number % 2 == 0)
                for number in range(context.scaled(5, 2, least=2))
            ]
            yield from over_rounds([list(figures(alerts.title, *both)) for both in rounds])
            clear(open_bucket(settings))


def stored(settings: Settings, messages: Sequence[bytes]) -> int:
    """Store messages as the functions' workers do; the night that has the most of them."""
    storers = [each.make_batch_storer(settings) for each in (cutouts, lightcurves)]
    views, topic = views_of_one_buffer(messages), "bench@0"
    for begin in range(0, len(messages), BATCH):
        some = views[begin : begin + BATCH]
        positions = [Position(topic, 0, begin + number) for number in range(len(some))]
        for store in storers:
            assert not any(store(Batch(some, positions)).outcomes)
    packs = open_bucket(settings).list("packets/")
    [(night, _)] = Counter(night_of(pack.key) for pack in packs).most_common(1)
    assert night is not None
    return night


def one_round(
    settings: Settings,
    night: int,
    messages: Sequence[bytes],
    topics: Iterator[str],
    bare_first: bool = True,
) -> tuple[Sent, Sent]:
    """What the bare producer and the replay took."""
    names = list(islice(topics, 2))
    make_topics(settings.kafka, names)
    target = f"kafka://{settings.kafka}/{names[1]}"
    ways = [
        lambda: bare(settings.kafka, names[0], messages),
        lambda: send(whole(settings, night), target, {}),
    ]
    order = (0, 1) if bare_first else (1, 0)
    try:
        took = {way: timed(ways[way]) for way in order}
    finally:
        admin = AdminClient({"bootstrap.servers": settings.kafka})
        for done in admin.delete_topics(names).values():
            done.result(30)
    return took[0], took[1]


def timed(work: Callable[[], int]) -> Sent:
    """What sending took; `work` returns how many were sent."""
    begin, cpu = time.monotonic(), time.process_time()
    count = work()
    return Sent(count / (time.monotonic() - begin), 1e3 * (time.process_time() - cpu) / count)


def bare(bootstrap: str, topic: str, messages: Sequence[bytes]) -> int:
    """Send messages in memory by Kafka's client alone; how many Kafka has taken."""
    producer = Producer({**OPTIONS, "bootstrap.servers": bootstrap})
    for message in messages:
        while True:
            try:
                producer.produce(topic, message)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert not producer.flush(FLUSH_SECONDS)
    return len(messages)


def figures(title: str, limit: Sent, replay: Sent) -> Iterator[Figure]:
    """The rate and the CPU time of a replay beside the limit's."""
    subject, what = f"a night sent again: {title}", "a bare producer of messages in memory"
    rival = Rival(what, limit.rate)
    yield Figure(subject, "sent", replay.rate, "alerts/s", rival, REQUIREMENT, None, TARGET)
    yield Figure(subject, "CPU of the sender", replay.cpu, "ms CPU/alert", Rival(what, limit.cpu))


def whole(settings: Settings, night: int) -> Iterator[Replayed]:
    """The alerts of a night that can be sent again, which are all."""
    return (alert for alert in Night(settings, night) if isinstance(alert, Replayed))
