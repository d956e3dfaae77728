"""Settings of a bucket that change what a DELETE does, or that delete by themselves.

Stampede deletes what it has merged and what is older than its own retention, and nothing else may
delete. So a bucket needs no versions, no object lock and no rule that expires objects.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLifecycleConfiguration.html
"""

from collections.abc import Iterator
from typing import NamedTuple, cast
from xml.etree import ElementTree

from stampede.store.s3.minio_client import S3Client, S3Error

_UNSET = {
    "NoSuchLifecycleConfiguration",
    "ObjectLockConfigurationNotFoundError",
    "NoSuchObjectLockConfiguration",
    # of endpoints that have no such setting
    "MethodNotAllowed",
    "NotImplemented",
}
_LESS = "{*}"  # any namespace, or none: endpoints differ


class LifecycleRule(NamedTuple):
    """An enabled rule that deletes or moves objects.

    Attributes
    ----------
    name, prefix
        Of the rule; it applies to keys with that prefix.
    action
        ``Expiration`` or ``Transition``.
    when
        Such as ``after 30 days``.
    """

    name: str
    prefix: str
    action: str
    when: str


class BucketSettings(NamedTuple):
    """Settings of a bucket.

    Attributes
    ----------
    versioning
        ``Enabled``, ``Suspended``, or empty if it was never on.
    lock
        Whether object lock is on.
    locked_for
        For how long each new object is locked, such as ``15 days``; empty for no time.
    rules
        Lifecycle rules that delete or move objects that are not old versions.
    """

    versioning: str
    lock: bool
    locked_for: str
    rules: tuple[LifecycleRule, ...]


def read_settings(client: S3Client, bucket: str) -> BucketSettings:
    """The settings of a bucket, in three requests.

    Raises
    ------
    S3Error
        For example if the keys may not read them.
    """
    versioning, lock, lifecycle = (
        _document(client, bucket, name) for name in ("versioning", "object-lock", "lifecycle")
    )
    locked_for = ""
    for unit in ("Days", "Years"):
        if number := lock.findtext(f".//{_LESS}{unit}"):
            locked_for = f"{number} {unit.lower()}"
    return BucketSettings(
        versioning.findtext(f"{_LESS}Status") or "",
        lock.findtext(f"{_LESS}ObjectLockEnabled") == "Enabled",
        locked_for,
        tuple(_rules(lifecycle)),
    )


def delete_versions(client: S3Client, bucket: str, prefix: str) -> None:
    """Delete all versions and delete markers of the objects whose keys start with `prefix`."""
    found = client.list_objects(bucket, prefix, recursive=True, include_version=True)
    for each in [*found]:
        client.remove_object(bucket, cast(str, each.object_name), each.version_id)


def _document(client: S3Client, bucket: str, name: str) -> ElementTree.Element:
    """A setting as the endpoint gives it; an empty element if it is not set."""
    try:
        return client.setting(bucket, name)
    except S3Error as error:
        if error.code in _UNSET:
            return ElementTree.Element("Unset")
        raise


def _rules(lifecycle: ElementTree.Element) -> Iterator[LifecycleRule]:
    for rule in lifecycle.iterfind(f"{_LESS}Rule"):
        if rule.findtext(f"{_LESS}Status") != "Enabled":
            continue
        name = rule.findtext(f"{_LESS}ID") or "without a name"
        prefix = rule.findtext(f".//{_LESS}Prefix") or ""
        for action in ("Expiration", "Transition"):
            for one in rule.iterfind(f"{_LESS}{action}"):
                if when := _when(one):
                    yield LifecycleRule(name, prefix, action, when)


def _when(action: ElementTree.Element) -> str:
    """Empty for an action that only removes delete markers, which need no room."""
    if days := action.findtext(f"{_LESS}Days"):
        return f"after {days} days"
    date = action.findtext(f"{_LESS}Date")
    return f"on {date[:10]}" if date else ""
