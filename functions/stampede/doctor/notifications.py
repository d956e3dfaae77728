"""The store's notifications: without them no thumbnail is drawn and nothing is copied at once."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from stampede.doctor.finding import Finding, Installation, NotExamined, error
from stampede.doctor.sleeping import asleep
from stampede.errors import SetupError
from stampede.events.auth.access import url_with_key
from stampede.events.http.probes import is_ready
from stampede.store.ceph.bucket_notifications import PREFIXES, NotifyingBucket, Topic
from stampede.store.objects.probes import SENT
from stampede.store.open import first_site, open_objects
from stampede.store.s3.bucket import S3Objects


def notifications(installation: Installation) -> Iterator[Finding]:
    """The store notifies Stampede of each new object."""
    settings = installation.settings
    if not isinstance(open_objects(settings), S3Objects):
        raise NotExamined("a directory notifies nobody")
    url = settings.notifications or installation.urls.get("notifications", "")
    bucket = NotifyingBucket(first_site(settings), settings.installation)
    topic = _topic(bucket, url)
    if topic is None:
        yield error(f"the store has no topic {bucket.topic_name}", "`stampede setup`")
        return
    if url and topic.endpoint != url_with_key(url, settings):
        yield error(
            f"the store sends its notifications to {_host_of(topic.endpoint)}, not to "
            f"{_host_of(url)}, or with another key",
            "`stampede setup`",
        )
    if not topic.persistent:
        yield error(
            "the store does not keep notifications until they are delivered", "`stampede setup`"
        )
    if lacking := bucket.lacking(topic):
        text = f"the store sends no notifications of {', '.join(lacking)}"
        repair = "`stampede setup`"
        if {*lacking} == {*PREFIXES} - {SENT}:
            text += ": `reconcile` has taken them off, since none came"
            repair = "`reconcile` puts them back when `notifications`, Broker and `thumbnails` work"
        yield error(text, repair)
    # The store may know it by a URL that only works outside the cluster.
    endpoint = installation.urls.get("notifications", url).rstrip("/")
    if endpoint and not asleep({"notifications": endpoint}) and not is_ready(endpoint):
        yield error(
            f"nothing at {_host_of(endpoint)} takes notifications",
            "start the function `notifications`, and look at its log",
        )


def _topic(bucket: NotifyingBucket, url: str) -> Topic | None:
    """The store's topic. Raises `NotExamined` if it cannot have one, and nobody asked for it."""
    try:
        return bucket.topic()
    except SetupError as error:
        if url:
            raise
        raise NotExamined(
            f"STAMPEDE_NOTIFICATIONS is not set; `reconcile` sends the events. {error.message}"
        ) from None


def _host_of(url: str) -> str:
    """A URL without its path, which may hold a key."""
    return urlsplit(url)._replace(path="", query="").geturl()
