"""The guard of the store's notifications: a dead receiver must not stop what stores alerts.

Ceph keeps the notifications of a topic in a queue of 128 MB, and refuses to store an object whose
notification does not fit. So each pass of `reconcile` sends a probe: it stores an object, whose
notification takes the way of all others, to `thumbnails`, which writes down that it came. If none
has come for `notification_patience_seconds`, the guard takes the notifications off the bucket, but
for those of probes. When one comes, it puts them back. `reconcile` finds what nobody was told.

A topic that a gateway has given up, or whose queue is lost, delivers nothing either. If nothing has
come for four times as long, the guard makes the topic anew. The reasons are in
docs/adr/0066-notification-guard.md.
"""

from datetime import datetime, timedelta

from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreDown
from stampede.store.ceph.bucket_notifications import NotifyingBucket, Topic
from stampede.store.objects.object_store import Objects
from stampede.store.objects.probes import (
    ANEW,
    ASKED,
    RECEIVED,
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
        if repair:
            on = self._judge(bucket, topic, waited, on)
            if waited > TIMES * self._patience and self._is_old(now):
                self._make_anew(bucket, topic, now)
            self._send_probe(bucket, topic, first, now)
        reconcile_metrics.NOTIFICATIONS_WAITED.set(waited.total_seconds())
        reconcile_metrics.NOTIFICATIONS_OFF.set(0 if on else 1)

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
            bucket.take_off(topic, log.info)
        return False

    def _is_old(self, now: datetime) -> bool:
        """Whether the topic was not made anew lately: Ceph serves a new one within 30 s."""
        made = moments_of(self._objects, ANEW)
        return not made or now - made[0] > TIMES * self._patience

    def _make_anew(self, bucket: NotifyingBucket, topic: Topic, now: datetime) -> None:
        write_moments(self._objects, ANEW, now)
        bucket.make_anew(topic, int(now.timestamp()), log.info)

    def _send_probe(
        self, bucket: NotifyingBucket, topic: Topic, first: datetime, now: datetime
    ) -> None:
        key = sent_probe(now)
        write_moments(self._objects, ASKED, first, now)
        try:
            self._objects.put(key, b"")
        except StoreDown as error:
            # As what has no notification was stored, the queue is full or lost.
            if self._is_old(now):
                self._make_anew(bucket, topic, now)
            log.error("the store refused a probe", why=error.message)
        else:
            self._objects.delete(key)


def _topic_of(settings: Settings) -> tuple[NotifyingBucket, Topic] | None:
    """The bucket and its topic; None if there is none."""
    try:
        bucket = NotifyingBucket(first_site(settings), settings.installation)
        topic = bucket.topic()
    except (SetupError, ValueError):  # it is no Ceph, or not for this user, or there are no keys
        return None
    return (bucket, topic) if topic else None
