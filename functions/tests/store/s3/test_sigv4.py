"""Signatures of what reads, compared with those of minio-py."""

from datetime import UTC, datetime, timedelta
from urllib.parse import SplitResult, quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minio.credentials import Credentials
from minio.signer import sign_v4_s3

from stampede.store.objects.address import StoreAddress
from stampede.store.s3.credentials import KeyPair, S3Keys
from stampede.store.s3.sigv4 import REUSE_SECONDS, Signer

PLAIN = st.text("ABCxyz019._-", min_size=1, max_size=20)
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


def signer_of(access: str, secret: str, region: str) -> Signer:
    return Signer(S3Keys(StoreAddress("", access, secret)), region)


def by_minio(keys: tuple[str, str], region: str, url: str, now: datetime) -> dict[str, str]:
    """The headers that minio-py signs for the same GET."""
    no_body = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    plain = {
        "x-amz-content-sha256": no_body,
        "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
    }
    where = urlsplit(url)
    headers: dict[str, str | list[str] | tuple[str]] = {"Host": where.netloc, **plain}
    signed = sign_v4_s3(
        method="GET",
        url=where,
        region=region,
        headers=headers,
        credentials=Credentials(*keys),
        content_sha256=no_body,
        date=now,
    )
    return plain | {"Authorization": str(signed["Authorization"])}


@given(PLAIN, SECRETS, PLAIN, PLAIN, st.integers(0, 1 << 32), st.integers(0, 9))
def test_signs_as_minio_does(
    access: str, secret: str, region: str, key: str, period: int, later: int
) -> None:
    began = period * REUSE_SECONDS
    now = datetime.fromtimestamp(began, UTC)
    expected = by_minio((access, secret), region, f"http://host:80/b/{key}", now)
    signer = signer_of(access, secret, region)
    for seconds in (began, began + later, began + 0.99 * REUSE_SECONDS):
        assert signer.get_headers("host:80", f"/b/{key}", seconds) == expected


@pytest.mark.parametrize("days", [1, -1, 365])
def test_each_day_has_a_key_of_its_own(days: int) -> None:
    signer, first = (
        signer_of("key", "secret", "default"),
        datetime(2026, 3, 1, 23, 59, 50, tzinfo=UTC),
    )
    for now in (first, first + timedelta(days=days), first):
        expected = by_minio(("key", "secret"), "default", "http://h/b/k", now)
        assert signer.get_headers("h", "/b/k", now.timestamp()) == expected


def test_a_signature_is_of_one_object_one_period_and_one_pair_of_keys() -> None:
    keys = S3Keys(StoreAddress("", "key", "secret"))
    signer = Signer(keys, "default")

    def signature(path: str, seconds: float) -> str:
        return signer.get_headers("h", path, seconds)["Authorization"]

    first = signature("/b/k", 0.0)
    assert signature("/b/k", REUSE_SECONDS - 0.1) == first
    assert signature("/b/other", 0.0) != first
    assert signature("/b/k", REUSE_SECONDS) != first
    keys.current = KeyPair("key", "another")
    assert signature("/b/k", 0.0) != first
    keys.current = KeyPair("key", "secret")
    assert signature("/b/k", 0.0) == first


@given(
    st.sampled_from(["GET", "HEAD"]),
    PLAIN,
    SECRETS,
    PLAIN,
    st.text(min_size=1, max_size=30),
    st.datetimes(datetime(2000, 1, 1)),
)
def test_signs_a_listing_and_a_head_as_minio_does(
    method: str, access: str, secret: str, region: str, text: str, moment: datetime
) -> None:
    now = moment.replace(tzinfo=UTC)
    query = f"delimiter=&list-type=2&prefix={quote(text, safe='~')}" if method == "GET" else ""
    path = f"/b/{quote(text, safe='/~')}"
    found = signer_of(access, secret, region).headers(method, "host:80", path, query, now)
    signed = sign_v4_s3(
        method=method,
        url=SplitResult("http", "host:80", path, query, ""),
        region=region,
        headers={"Host": "host:80", **found, "Authorization": ""},
        credentials=Credentials(access, secret),
        content_sha256=found["x-amz-content-sha256"],
        date=now,
    )
    assert found["Authorization"] == signed["Authorization"]
