"""`stampede setup`: the bucket, and that the store tells of everything that is put into it.

Topics are made by the subset of Amazon's SNS API that Ceph's RGW has, notifications by S3's.
What RGW (16.2) does there: a notification keeps a copy of its topic, so it is made again when
the topic changes; PutBucketNotification adds and never removes; DELETE ``?notification``, which
S3 has not, removes them all; a topic removed first leaves them behind.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import urllib3
from minio import Minio, time
from minio.credentials import Credentials
from minio.error import MinioException, S3Error
from minio.notificationconfig import NotificationConfig, PrefixFilterRule, TopicConfig
from minio.signer import sign_v4_s3
from urllib3.exceptions import HTTPError

from stampede.errors import SetupError, StoreDown
from stampede.settings import Settings
from stampede.store.open import open_objects
from stampede.store.s3 import S3Objects

Say = Callable[[str], None]

# What is told of: everything that is kept. One notification each, so that one may be taken away.
PREFIXES = ("packs/", "thumbnails/", "tables/", "alerts/", "deadletters/")
EVENTS = ["s3:ObjectCreated:*"]


class Topic(NamedTuple):
    """Where an S3 endpoint pushes notifications to."""

    arn: str
    name: str
    endpoint: str
    persistent: bool


def setup(settings: Settings, say: Say) -> None:
    """Make what is lacking: the bucket, the topic, its notifications; the second site's bucket.

    Harmless to repeat. Raises `SetupError`, `StoreDown`.
    """
    for each in sites(settings):
        if isinstance(open_objects(each), S3Objects):
            NotifyingBucket(each).make_bucket(say)
        else:
            say(f"{each.store}: nothing to make, and it tells of nothing that is stored")
    if not isinstance(open_objects(settings), S3Objects):
        return
    if not settings.notifications:
        say("STAMPEDE_NOTIFICATIONS is not set: the store tells nobody what is stored")
        return
    if not settings.notifications.startswith(("http://", "https://")):
        raise SetupError(f"STAMPEDE_NOTIFICATIONS is no http(s) URL: {settings.notifications}")
    site = NotifyingBucket(settings)
    site.make_notifications(site.make_topic(settings.notifications, say), say)


def remove(settings: Settings, say: Say) -> None:
    """Take away what `setup` made, but for buckets and data. Harmless to repeat."""
    if isinstance(open_objects(settings), S3Objects):
        NotifyingBucket(settings).remove(say)
    say("the buckets, and all that is in them, stay")


def sites(settings: Settings) -> Iterator[Settings]:
    """The store, and the second site if there is one, each as settings of a store."""
    yield settings
    if settings.replica:
        yield settings.model_copy(
            update={
                "store": settings.replica,
                "access_key": settings.replica_access_key,
                "secret_key": settings.replica_secret_key,
                "region": settings.replica_region,
                "ca_file": settings.replica_ca_file,
            }
        )


class NotifyingBucket:
    """One bucket of an S3 endpoint, and what the endpoint tells of it."""

    def __init__(self, settings: Settings) -> None:
        parts = urlsplit(settings.store)
        self._bucket = parts.path.strip("/")
        self._url = parts._replace(path="/", query="", fragment="")
        self._region = settings.region
        self._keys = Credentials(settings.access_key, settings.secret_key.get_secret_value())
        self._pool = urllib3.PoolManager(
            ca_certs=str(settings.ca_file) if settings.ca_file else None,
            timeout=urllib3.Timeout(connect=3, read=30),
        )
        self._minio = Minio(
            endpoint=parts.netloc,
            access_key=self._keys.access_key,
            secret_key=self._keys.secret_key,
            region=settings.region,
            secure=parts.scheme == "https",
            http_client=self._pool,
        )

    @property
    def topic_name(self) -> str:
        """Of the topic: RGW's are common to all buckets, so it is called after this one."""
        return f"stampede-{self._bucket}"

    def make_bucket(self, say: Say) -> None:
        """Make the bucket if there is none."""
        with self._errors():
            if self._minio.bucket_exists(bucket_name=self._bucket):
                say(f"bucket {self._bucket}: is there")
                return
            self._minio.make_bucket(bucket_name=self._bucket)
            say(f"bucket {self._bucket}: made")

    def make_topic(self, endpoint: str, say: Say) -> Topic:
        """The topic that pushes to `endpoint`; made, or changed, where there is none."""
        found = next((t for t in self.topics() if t.name == self.topic_name), None)
        if found and found.endpoint == endpoint and found.persistent:
            say(f"topic {found.name}: is there, pushes to {endpoint}")
            return found
        # What they copied is wrong now. First, so that a break leaves nothing that looks right.
        self._remove_notifications(say)
        attributes = {"push-endpoint": endpoint, "persistent": "true"}
        fields = {
            f"Attributes.entry.{place}.{part}": text
            for place, pair in enumerate(attributes.items(), 1)
            for part, text in zip(("key", "value"), pair, strict=True)
        }
        answer = self._ask(Action="CreateTopic", Name=self.topic_name, **fields)
        arn = answer.findtext(".//{*}TopicArn") or ""
        say(
            f"topic {self.topic_name}: {'changed' if found else 'made'}, pushes to {endpoint}; "
            "a new one is served within 30 s"
        )
        return Topic(arn, self.topic_name, endpoint, True)

    def make_notifications(self, topic: Topic, say: Say) -> None:
        """Have every prefix told to the topic."""
        found = self._notifications()
        for prefix in PREFIXES:
            name = f"stampede-{prefix.strip('/')}"
            if found.get(name) == (topic.arn, prefix):
                say(f"notification {name}: is there")
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
            say(f"notification {name}: made, for {self._bucket}/{prefix}*")

    def remove(self, say: Say) -> None:
        """Take away this bucket's notifications that are ours, then the topic."""
        with self._errors():
            there = self._minio.bucket_exists(bucket_name=self._bucket)
        if there:
            self._remove_notifications(say)
        for topic in self.topics():
            if topic.name == self.topic_name:
                self._ask(Action="DeleteTopic", TopicArn=topic.arn)
                say(f"topic {topic.name}: removed")

    def topics(self) -> list[Topic]:
        """All topics of the endpoint."""
        topics: list[Topic] = []
        token: str | None = ""
        while token is not None:
            answer = self._ask(Action="ListTopics", **({"NextToken": token} if token else {}))
            topics += map(topic_of, answer.iterfind(".//{*}member"))
            token = answer.findtext(".//{*}NextToken") or None
        return topics

    def _remove_notifications(self, say: Say) -> None:
        for name in self._notifications():
            if name.startswith("stampede-"):
                self._send("DELETE", f"/{self._bucket}", {"notification": name})
                say(f"notification {name}: removed")

    def _notifications(self) -> dict[str, tuple[str, str]]:
        """Topic and prefix of every notification of the bucket, by name."""
        with self._errors():
            config = self._minio.get_bucket_notification(bucket_name=self._bucket)
        return {
            each.config_id or "": (
                each.topic or "",
                (each.prefix_filter_rule and each.prefix_filter_rule.value) or "",
            )
            for each in config.topic_config_list or ()
        }

    def _ask(self, **fields: str) -> ElementTree.Element:
        return ElementTree.fromstring(self._send("POST", "/", {}, urlencode(fields).encode()))

    def _send(self, method: str, path: str, query: dict[str, str], body: bytes = b"") -> bytes:
        """A signed request. Raises `SetupError` where the endpoint refuses it."""
        url = self._url._replace(path=path, query=urlencode(query))
        now, digest = time.utcnow(), hashlib.sha256(body).hexdigest()
        headers: dict[str, Any] = {
            "Host": url.netloc,
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Amz-Date": time.to_amz_date(now),
            "X-Amz-Content-Sha256": digest,
        }
        sign_v4_s3(
            method=method,
            url=url,
            region=self._region,
            headers=headers,
            credentials=self._keys,
            content_sha256=digest,
            date=now,
        )
        with self._errors():
            answer = self._pool.request(method, url.geturl(), body=body, headers=headers)
        if answer.status >= 500:
            raise StoreDown(f"{self._url.geturl()} answered {answer.status}")
        if answer.status >= 300:
            raise SetupError(
                f"{self._url.geturl()} has no topics for notifications as Ceph's RGW has them, or "
                f"not for this user: it answered {answer.status} {answer.data.decode()[:200]}"
            )
        return answer.data

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except S3Error as error:
            raise SetupError(
                f"{self._url.geturl()} answered {error.code} for bucket {self._bucket}"
            ) from None
        except ValueError as error:
            raise SetupError(f"{self._url.geturl()}: {error}") from None
        except (MinioException, HTTPError, OSError) as error:
            raise StoreDown(f"{self._url.geturl()} does not answer: {error}") from None


def topic_of(member: ElementTree.Element) -> Topic:
    """A topic as RGW lists it."""
    return Topic(
        member.findtext("{*}TopicArn") or "",
        member.findtext("{*}Name") or "",
        member.findtext("{*}EndPoint/{*}EndpointAddress") or "",
        (member.findtext("{*}EndPoint/{*}Persistent") or "").lower() == "true",
    )
