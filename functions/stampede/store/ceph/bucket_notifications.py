"""`stampede setup`: make the bucket, and make the store send a notification for each new object.

Topics are made through the subset of Amazon's SNS API that Ceph's RGW has, notifications through
S3's API. RGW (16.2) behaves as follows. A notification holds a copy of its topic, so it must be
made again when the topic changes. PutBucketNotification adds notifications and never removes any.
DELETE ``?notification``, which S3 does not have, removes all of them, or one by its name. A topic
that is deleted first leaves its notifications behind. A bucket may have notifications of several
topics for one prefix: so each installation that shares a bucket has a topic of its own.
"""

import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

from minio.error import MinioException, S3Error
from minio.notificationconfig import NotificationConfig, PrefixFilterRule, TopicConfig
from urllib3.exceptions import HTTPError

from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreDown
from stampede.runtime.progress import Progress
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.probes import SENT
from stampede.store.open import first_site, open_store, second_site
from stampede.store.s3.bucket import S3Objects
from stampede.store.s3.faults import answer_of
from stampede.store.s3.minio_client import S3Client
from stampede.store.s3.signed_requests import S3Requests

# Everything that is stored, and probes. Each prefix has a notification that can be removed alone.
PREFIXES = ("packs/", "thumbnails/", "packets/", "tables/", "alerts/", "deadletters/", SENT)
EVENTS = ["s3:ObjectCreated:*"]
_ANEW = "-anew-"
# How Ceph refuses an object whose notification it cannot keep: the topic's queue is full, or gone.
_REFUSALS = ("SlowDown", "InvalidArgument")


class Topic(NamedTuple):
    """A destination to which an S3 endpoint pushes notifications."""

    arn: str
    name: str
    endpoint: str
    persistent: bool


def setup(settings: Settings, progress: Progress) -> None:
    """Make the bucket, the topic, its notifications and the second site's bucket, if missing.

    Harmless to repeat. Raises `SetupError`, `StoreDown`.
    """
    store = first_site(settings)
    for site in (store, second_site(settings)) if settings.replica else (store,):
        if _is_bucket(site):
            NotifyingBucket(site).make_bucket(progress)
        else:
            progress(f"{site.url}: no bucket to make, and no notifications from this kind of store")
    if not _is_bucket(store):
        return
    if not settings.notifications:
        progress("STAMPEDE_NOTIFICATIONS is not set: the store sends no notifications")
        return
    if not settings.notifications.startswith(("http://", "https://")):
        raise SetupError(f"STAMPEDE_NOTIFICATIONS is not an http(s) URL: {settings.notifications}")
    bucket = NotifyingBucket(store, settings.installation)
    topic = bucket.make_topic(settings.notifications, progress)
    bucket.make_notifications(topic, progress)
    if settings.installation:
        remove_unnamed(store, settings.notifications, progress)


def remove(settings: Settings, progress: Progress) -> None:
    """Remove what `setup` made, except buckets and data. Harmless to repeat."""
    store = first_site(settings)
    if _is_bucket(store):
        NotifyingBucket(store, settings.installation).remove(progress)
    progress("the buckets and all objects in them stay")


def _is_bucket(site: StoreAddress) -> bool:
    return isinstance(open_store(site), S3Objects)


class NotifyingBucket:
    """One bucket of an S3 endpoint, with the topic and notifications of one installation.

    Parameters
    ----------
    installation
        Tells the topic and the notifications from those of other installations on this bucket.
    """

    def __init__(self, site: StoreAddress, installation: str = "") -> None:
        url = urlsplit(site.url)
        self._installation = installation
        self._bucket = url.path.strip("/")
        self._requests = S3Requests(site)
        self._minio = S3Client(url, site.region, self._requests.keys, self._requests.pool)

    @property
    def topic_name(self) -> str:
        """RGW's topics are common to all buckets, so the name includes this bucket's."""
        return self._name(self._bucket)

    def _name(self, of: str) -> str:
        return "-".join(filter(None, ("stampede", self._installation, of)))

    def make_bucket(self, progress: Progress) -> None:
        """Make the bucket if it does not exist."""
        with self._errors():
            if self._minio.bucket_exists(bucket_name=self._bucket):
                progress(f"bucket {self._bucket}: is there")
                return
            self._minio.make_bucket(bucket_name=self._bucket)
            progress(f"bucket {self._bucket}: made")

    def make_topic(self, endpoint: str, progress: Progress) -> Topic:
        """The topic that pushes to `endpoint`; made or changed if necessary."""
        shown = urlsplit(endpoint)._replace(path="", query="").geturl()  # the path may have a key
        found = self.topic()
        if found and found.endpoint == endpoint and found.persistent:
            progress(f"topic {found.name}: is there, pushes to {shown}")
            return found
        # Notifications hold a copy of the old topic. Remove them first: otherwise an interruption
        # would leave some that look right but push to the old endpoint.
        self._remove_notifications(progress)
        topic = self._create_topic(found.name if found else self.topic_name, endpoint)
        progress(
            f"topic {topic.name}: {'changed' if found else 'made'}, pushes to {shown}; "
            "a new one is served within 30 s"
        )
        return topic

    def topic(self) -> Topic | None:
        """This installation's topic, the last that was made anew; None if there is none."""
        ours = [each for each in self.topics() if is_named(each.name, self.topic_name)]
        return max(ours, key=lambda each: (len(each.name), each.name), default=None)

    def renew(self, topic: Topic, number: int, prefixes: Sequence[str], progress: Progress) -> None:
        """Send the notifications of `prefixes` to a new topic, whose queue is empty.

        `topic` stays, and delivers what its queue holds; those before it are removed. The new name
        has a `number` that none had. A gateway that was refused a connection gives up a topic by
        its name until it is restarted, whatever is deleted and made again.
        """
        made = self._create_topic(f"{self.topic_name}{_ANEW}{number}", topic.endpoint)
        progress(f"topic {made.name}: made anew")
        self.make_notifications(made, progress, prefixes)
        for each in self.topics():
            if is_named(each.name, self.topic_name) and each.name not in (made.name, topic.name):
                self._call(Action="DeleteTopic", TopicArn=each.arn)
                progress(f"topic {each.name}: removed")

    def stores(self, key: str) -> bool:
        """Store an empty object; False if the store refuses its notification.

        Raises `StoreDown`, also for any other refusal.
        """
        with self._errors():
            try:
                self._minio.put_bytes(self._bucket, key, b"", {})
            except S3Error as error:
                if error.code in _REFUSALS:
                    return False
                why = f"{self._requests.endpoint} answered {error.code} at {key}"
                raise StoreDown(why) from None
        return True

    def _create_topic(self, name: str, endpoint: str) -> Topic:
        attributes = {"push-endpoint": endpoint, "persistent": "true"}
        fields = {
            f"Attributes.entry.{number}.{part}": text
            for number, pair in enumerate(attributes.items(), 1)
            for part, text in zip(("key", "value"), pair, strict=True)
        }
        reply = self._call(Action="CreateTopic", Name=name, **fields)
        return Topic(reply.findtext(".//{*}TopicArn") or "", name, endpoint, True)

    def lacking(self, topic: Topic) -> list[str]:
        """The prefixes of which nothing is sent to `topic`."""
        found = set(self.notifications().values())
        return [prefix for prefix in PREFIXES if (topic.arn, prefix) not in found]

    def make_notifications(
        self, topic: Topic, progress: Progress, prefixes: Sequence[str] = PREFIXES
    ) -> None:
        """Make the notification of every prefix, sent to `topic`; then remove any other."""
        found = self.notifications().values()
        for prefix in prefixes:
            # Several topics may have a notification of a prefix, but each of another name.
            name = self._name(prefix.strip("/").replace("/", "-"))
            name += topic.name.removeprefix(self.topic_name)
            if (topic.arn, prefix) in found:
                progress(f"notification {name}: is there")
                continue
            notification = TopicConfig(
                topic=topic.arn,
                events=EVENTS,
                config_id=name,
                prefix_filter_rule=PrefixFilterRule(prefix),
            )
            with self._errors():
                self._minio.set_bucket_notification(
                    bucket_name=self._bucket,
                    config=NotificationConfig(topic_config_list=[notification]),
                )
            progress(f"notification {name}: made, for {self._bucket}/{prefix}*")
        self._remove_notifications(progress, {(topic.arn, prefix) for prefix in prefixes})

    def remove(self, progress: Progress) -> None:
        """Remove Stampede's notifications from this bucket, then its topic."""
        with self._errors():
            exists = self._minio.bucket_exists(bucket_name=self._bucket)
        if exists:
            self._remove_notifications(progress)
        for topic in self.topics():
            if is_named(topic.name, self.topic_name):
                self._call(Action="DeleteTopic", TopicArn=topic.arn)
                progress(f"topic {topic.name}: removed")

    def topics(self) -> list[Topic]:
        """All topics of the endpoint."""
        topics: list[Topic] = []
        token: str | None = ""
        while token is not None:
            reply = self._call(Action="ListTopics", **({"NextToken": token} if token else {}))
            topics += map(topic_of, reply.iterfind(".//{*}member"))
            token = reply.findtext(".//{*}NextToken") or None
        return topics

    def _remove_notifications(
        self, progress: Progress, but: Container[tuple[str, str]] = ()
    ) -> None:
        for name, sent in self.notifications().items():
            if sent not in but and is_named(sent[0].rpartition(":")[2], self.topic_name):
                self._send("DELETE", f"/{self._bucket}", {"notification": name})
                progress(f"notification {name}: removed")

    def notifications(self) -> dict[str, tuple[str, str]]:
        """Topic ARN and prefix of every notification of the bucket, by name."""
        with self._errors():
            config = self._minio.get_bucket_notification(bucket_name=self._bucket)
        return {
            notification.config_id or "": (
                notification.topic or "",
                (notification.prefix_filter_rule and notification.prefix_filter_rule.value) or "",
            )
            for notification in config.topic_config_list or ()
        }

    def _call(self, **fields: str) -> ElementTree.Element:
        return ElementTree.fromstring(self._send("POST", "/", {}, urlencode(fields).encode()))

    def _send(self, method: str, path: str, query: dict[str, str], body: bytes = b"") -> bytes:
        """Send a signed request and return the body. Raises `SetupError` if it is refused."""
        response = self._requests.send(method, path, query, body)
        if response.status >= 300:
            raise SetupError(
                f"{self._requests.endpoint} does not have the topics API of Ceph's RGW, or "
                f"not for this user: it answered {answer_of(response.status, response.data)}"
            )
        return response.data

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except S3Error as error:
            raise SetupError(
                f"{self._requests.endpoint} answered {error.code} for bucket {self._bucket}"
            ) from None
        except ValueError as error:
            raise SetupError(f"{self._requests.endpoint}: {error}") from None
        except (MinioException, HTTPError, OSError) as error:
            raise StoreDown(f"{self._requests.endpoint} does not answer: {error}") from None


def is_named(name: str, base: str) -> bool:
    """Whether a topic has this name, or has had it before it was made anew."""
    return re.fullmatch(rf"{re.escape(base)}({_ANEW}[0-9]{{1,15}})?", name) is not None


def number_of(topic: Topic) -> int | None:
    """The number that the topic was made anew with; None for the first."""
    number = re.search(rf"{_ANEW}([0-9]{{1,15}})$", topic.name)
    return int(number[1]) if number else None


def remove_unnamed(site: StoreAddress, endpoint: str, progress: Progress) -> None:
    """Remove the topic that an older release made of a bucket without a name, if it was ours.

    It was ours if it pushes to the host of `endpoint`.
    """
    unnamed = NotifyingBucket(site)
    topic = unnamed.topic()
    if topic and urlsplit(topic.endpoint).netloc == urlsplit(endpoint).netloc:
        unnamed.remove(progress)


def topic_of(member: ElementTree.Element) -> Topic:
    """A topic from an entry of RGW's listing."""
    return Topic(
        member.findtext("{*}TopicArn") or "",
        member.findtext("{*}Name") or "",
        member.findtext("{*}EndPoint/{*}EndpointAddress") or "",
        (member.findtext("{*}EndPoint/{*}Persistent") or "").lower() == "true",
    )
