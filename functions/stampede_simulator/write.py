"""Write alerts to Kafka, to a folder of Avro files, or to a tar file."""

import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from confluent_kafka import KafkaException, Message, Producer

from stampede.config.topics import NAME
from stampede.errors import SetupError
from stampede.events.kafka.errors import reason
from stampede.events.kafka.producer import DELIVERY_SECONDS, RESPONSE_SECONDS, Deliveries
from stampede.runtime.progress import telling_if_slow
from stampede.telemetry.logs import get_logger
from stampede_simulator.alert_bytes import SimulatedAlert

log = get_logger()
OnWritten = Callable[[SimulatedAlert], None]

TOPICS = {"lsst": "lsst-alerts", "ztf": "ztf-alerts"}
BROKERS = re.compile(r"[^/:,\s]+:[0-9]+(,[^/:,\s]+(:[0-9]+)?)*")  # HOST:PORT, …
OTHER_FILES = (".gz", ".tgz", ".bz2", ".xz", ".zip", ".avro")
LARGEST = 16 << 20  # bytes of a message; larger than any alert


def ignore(alert: SimulatedAlert) -> None:
    """Do nothing when an alert is written."""


def write(alerts: Iterable[SimulatedAlert], target: str, on_written: OnWritten = ignore) -> int:
    """Write all alerts to `target`, and call `on_written` for each. Returns their number.

    Parameters
    ----------
    target
        ``kafka://HOST:PORT`` (topics `TOPICS`, or others with ``?lsst=NAME&ztf=NAME``, where
        ``{YYYYMMDD}`` is the day in UTC when an alert is sent), a name that ends in ``.tar``, or a
        folder.

    Raises
    ------
    SetupError
        The target cannot be written to.
    """
    if target.startswith("kafka://"):
        return to_kafka(alerts, *parse_kafka(target), on_written)
    check_path(target)
    try:
        to_files = to_tar if target.endswith(".tar") else to_folder
        return to_files(alerts, Path(target), on_written)
    except OSError as error:
        raise SetupError(f"cannot write to {target}: {error.strerror}") from error


def parse_kafka(target: str) -> tuple[str, dict[str, str]]:
    """Bootstrap servers and topics of ``kafka://…``. Raises `SetupError` if it says more."""
    parts = urlsplit(target)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    wrong = [name for name in given if name not in TOPICS or not is_topic(given[name])]
    if not parts.netloc or parts.path.strip("/") or parts.fragment or wrong:
        raise SetupError(
            f"cannot write to {target}: give kafka://HOST:PORT, with other topics "
            "kafka://HOST:PORT?lsst=TOPIC&ztf=TOPIC. {YYYYMMDD} in a topic is the day of sending"
        )
    return parts.netloc, TOPICS | given


def is_topic(name: str) -> bool:
    """Whether a name is that of a topic, with ``{YYYYMMDD}`` for the day when it is sent to."""
    return NAME.fullmatch(topic_now(name)) is not None


def topic_now(name: str) -> str:
    """The topic of today, in UTC."""
    return name.replace("{YYYYMMDD}", f"{datetime.now(UTC):%Y%m%d}")


def check_path(target: str) -> None:
    """Raise `SetupError` if a target is hardly the name of a folder or a tar file."""
    path = Path(target)
    if not target or "://" in target:
        need = "give kafka://HOST:PORT, FILE.tar or a folder"
    elif BROKERS.fullmatch(target) and not path.exists():
        need = f"for a Kafka give kafka://{target}, for a folder of that name ./{target}"
    elif target.endswith(OTHER_FILES) and not path.is_dir():
        need = "it writes FILE.tar, not compressed, or a folder"
    else:
        return
    raise SetupError(f"cannot write to {target!r}: {need}")


def to_kafka(
    alerts: Iterable[SimulatedAlert],
    bootstrap: str,
    topics: dict[str, str] = TOPICS,
    on_written: OnWritten = ignore,
) -> int:
    """Send alerts to the topic of their survey, without keys, as Rubin does, and wait for all.

    Raises `SetupError` if Kafka did not take all of them.
    """
    deliveries = Deliveries()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.max.bytes": LARGEST,
            "message.timeout.ms": DELIVERY_SECONDS * 1000,
            "queue.buffering.max.kbytes": 256 << 10,
            "linger.ms": 5,
            "log_level": 0,  # the delivery reports have the failures
        }
    )

    try:
        with telling_if_slow(log.warning, f"Kafka at {bootstrap} does not answer yet: waiting"):
            producer.list_topics(timeout=RESPONSE_SECONDS)
        for alert in alerts:
            taken = partial(_call_on_written, on_written, alert)
            deliveries.produce(producer, topic_now(topics[alert.survey]), alert.body, taken)
            if deliveries.failures:
                break
        producer.flush(DELIVERY_SECONDS + 5)
    except KafkaException as error:
        raise SetupError(f"Kafka at {bootstrap}: {reason(error)}") from error
    deliveries.check(bootstrap)
    return deliveries.taken


def _call_on_written(on_written: OnWritten, alert: SimulatedAlert, _: Message) -> None:
    on_written(alert)


def to_folder(
    alerts: Iterable[SimulatedAlert], folder: Path, on_written: OnWritten = ignore
) -> int:
    """Write each alert to ``<alert_id>.avro``, a duplicate to ``<alert_id>.again1.avro``."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for name, alert in named(alerts):
        (folder / name).write_bytes(alert.body)
        written += 1
        on_written(alert)
    return written


def to_tar(alerts: Iterable[SimulatedAlert], path: Path, on_written: OnWritten = ignore) -> int:
    """Write alerts as files of a tar, with the names that `to_folder` gives. Reproducible."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("wb") as tar:  # not with TarFile, which keeps every member in memory
        for name, alert in named(alerts):
            info = tarfile.TarInfo(name)
            info.size = len(alert.body)
            tar.write(info.tobuf(tarfile.USTAR_FORMAT))
            tar.write(alert.body)
            tar.write(bytes(-info.size % tarfile.BLOCKSIZE))
            written += 1
            on_written(alert)
        tar.write(bytes(2 * tarfile.BLOCKSIZE))
    return written


def named(alerts: Iterable[SimulatedAlert]) -> Iterable[tuple[str, SimulatedAlert]]:
    """Each alert with a unique file name."""
    copies: Counter[int] = Counter()
    for alert in alerts:
        name = str(alert.alert_id)
        if alert.duplicate:
            copies[alert.alert_id] += 1
            name += f".again{copies[alert.alert_id]}"
        yield f"{name}.avro", alert
