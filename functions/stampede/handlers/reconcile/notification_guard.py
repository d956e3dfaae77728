"""The guard of the store's notifications: a dead receiver must not stop what stores alerts.

Ceph keeps the notifications of a topic in a queue of 128 MB, and refuses to store an object whose
notification does not fit. So each pass of `reconcile` sends a probe: it stores an object, whose
notification takes the way of all others, to `thumbnails`, which writes down that it came. If none
has come for `notification_patience_seconds`, the guard takes the notifications off the bucket, but
for those of probes. When one comes, it puts them back. `reconcile` finds what nobody was told.

A topic that a gateway has given up, or whose queue is lost, delivers nothing either. If nothing has
come for four times as long, or if the store refuses a probe, a new topic takes the place of this
one. So it does each day: 10 bytes of the queue are lost with each notification, and 12.8 million
fill it. The old topic delivers what its queue holds until the next one is replaced. The reasons are
in docs/adr/0066-notification-guard.md.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.runtime.progress import silent
from stampede.store.ceph.bucket_notifications import PREFIXES, NotifyingBucket, Topic, number_of
from stampede.store.objects.object_store import Objects
from stampede.store.objects.probes import (
    ASKED,
    RECEIVED,
    SEEN,
    SENT,
    moments_of,
    sent_probe,
    write_moments,
)
from stampede.store.open import first_site
from stampede.store.s3.bucket import S3Objects
from stampede.telemetry import reconcile_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

TIMES = 4
"""Of the patience, after which the topic is made anew."""
LIFE = timedelta(days=1)
"""Of a topic whose notifications come. 148 a second fill its queue in that time, though empty."""
CONFIRMING_SECONDS = 1.0
"""Between two refusals of a probe: a store that is busy may refuse one."""


class NotificationGuard:
    """Watches the notifications of a bucket."""

    def __init__(self, settings: Settings, objects: Objects) -> None:
        self._objects = objects
        self._patience = timedelta(seconds=settings.notification_patience_seconds)
        self._settings = settings

    def check(self, repair: bool) -> None:
        """Take the notifications off, or put them back, if it is time; send a probe.

        Without `repair` only the metrics are set. Raises `StoreDown`, and `SetupError` if Ceph
        refuses a change.
        """
        if not self._patience or not isinstance(self._objects, S3Objects):
            return
        found = _topic_of(self._settings)
        if not found:
            return  # the store notifies nobody
        bucket, topic = found
        now = self._objects.now()
        first = self._first_asked(now)
        waited, on = now - first, not bucket.lacking(topic)
        reconcile_metrics.NOTIFICATIONS_WAITED.set(waited.total_seconds())
        if repair:
            on = self._judge(bucket, topic, waited, on)
        reconcile_metrics.NOTIFICATIONS_OFF.set(0 if on else 1)
        if repair:
            prefixes = PREFIXES if on else (SENT,)
            if self._is_due(self._age(topic, now), waited):
                bucket.renew(topic, int(now.timestamp()), prefixes, log.info)
            self._send_probe(bucket, prefixes, first, now)

    def _first_asked(self, now: datetime) -> datetime:
        """When the first probe that did not come was sent; `now` if all came.

        If nobody has sent one for longer than the patience, nothing is known of that time.
        """
        asked, came = moments_of(self._objects, ASKED), moments_of(self._objects, RECEIVED)
        if not asked or now - asked[-1] > self._patience or (came and came[0] >= asked[0]):
            return now
        return asked[0]

    def _judge(self, bucket: NotifyingBucket, topic: Topic, waited: timedelta, on: bool) -> bool:
        """Whether the bucket has all notifications after this."""
        if waited <= self._patience:
            if not on:
                log.warning("notifications come again: the bucket sends them", topic=topic.name)
                bucket.make_notifications(topic, log.info)
            return True
        if on:
            log.error(
                "no notification has come: the bucket sends none, so that its queue does not fill",
                topic=topic.name,
                seconds=round(waited.total_seconds()),
            )
        bucket.make_notifications(topic, silent, (SENT,))
        return False

    def _is_due(self, age: timedelta, waited: timedelta) -> bool:
        """Whether the topic is to be made anew.

        If nothing comes, it gets time: Ceph serves a new one within 30 s.
        """
        return age > (TIMES * self._patience if waited > TIMES * self._patience else LIFE)

    def _age(self, topic: Topic, now: datetime) -> timedelta:
        """How long ago the topic was made; if it does not say, was first seen."""
        if number := number_of(topic):
            return now - datetime.fromtimestamp(number, UTC)
        if seen := moments_of(self._objects, SEEN):
            return now - seen[0]
        write_moments(self._objects, SEEN, now)
        return timedelta()

    def _send_probe(
        self, bucket: NotifyingBucket, prefixes: Sequence[str], first: datetime, now: datetime
    ) -> None:
        key = sent_probe(now)
        if self._is_refused(bucket, key, first, now):
            log.error("the queue of notifications is full or lost: it refuses to store objects")
            if topic := bucket.topic():
                bucket.renew(topic, int(now.timestamp()), prefixes, log.info)
            bucket.stores(key)
        self._objects.delete(key)

    def _is_refused(
        self, bucket: NotifyingBucket, key: str, first: datetime, now: datetime
    ) -> bool:
        """Whether the store refuses a probe twice, and takes what has no notification."""
        for _ in range(2):
            write_moments(self._objects, ASKED, first, now)
            if bucket.stores(key):
                return False
            time.sleep(CONFIRMING_SECONDS)
        return True


def _topic_of(settings: Settings) -> tuple[NotifyingBucket, Topic] | None:
    """The bucket and its topic; None if there is none."""
    try:
        bucket = NotifyingBucket(first_site(settings), settings.installation)
        topic = bucket.topic()
    except (SetupError, ValueError):  # it is no Ceph, or not for this user, or there are no keys
        return None
    return (bucket, topic) if topic else None
