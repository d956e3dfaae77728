"""Listings and heads of a bucket, compared with those of minio-py."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from stampede.config.settings import Settings
from stampede.errors import NoBucket, NotFound, StoreDown, StoreRefused
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.open import first_site
from stampede.store.s3.bucket import S3Objects
from tests.support.store.ceph import minio_of
from tests.support.store.faulty_s3 import Answer, answer, error, faulty_s3

SPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
MOMENT = datetime(2026, 11, 22, 10, 0, 0, 123000, UTC)


def listing(inner: str, space: str = SPACE, root: str = "ListBucketResult", head: str = ""):
    text = f'<?xml version="1.0"?><{root} {space}><Name>bucket</Name>{head}{inner}</{root}>'
    return answer("200 OK", text.encode(), "Content-Type: application/xml")


def entry(key: str, moment: str = "2026-11-22T10:00:00.123Z") -> str:
    return (
        f"<Contents><Key>{key}</Key><LastModified>{moment}</LastModified>"
        f'<ETag>"an-etag"</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>'
    )


def objects_of(host: str) -> S3Objects:
    return S3Objects(StoreAddress(f"http://{host}/bucket", "key", "secret"))


@pytest.mark.parametrize("space", [SPACE, ""])
@pytest.mark.parametrize(
    ("head", "sent", "key"),
    [
        ("<EncodingType>url</EncodingType>", "packs/a+b%2Bc%2F%C3%A9", "packs/a b+c/é"),
        ("", "packs/a+b%2Bc", "packs/a+b%2Bc"),
        ("<EncodingType>url</EncodingType>", "packs/a%0Ab//c", "packs/a\nb//c"),
    ],
)
def test_an_entry_is_read_as_the_store_says(space: str, head: str, sent: str, key: str) -> None:
    with faulty_s3(listing(entry(sent), space, head=head)) as server:
        assert list(objects_of(server.host).list("packs/")) == [
            ObjectInfo(key, 7, "an-etag", MOMENT)
        ]


def test_a_time_without_a_fraction_is_read_too() -> None:
    with faulty_s3(listing(entry("a", "2026-11-22T10:00:00Z"))) as server:
        [info] = objects_of(server.host).list("")
    assert info.modified == datetime(2026, 11, 22, 10, tzinfo=UTC)


def test_the_next_page_is_asked_for_as_the_answer_says() -> None:
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>to/k=n</NextContinuationToken>"
    pages = listing(entry("b") + more), listing(entry("c") + "<IsTruncated>false</IsTruncated>")
    with faulty_s3(*pages) as server:
        found = [info.key for info in objects_of(server.host).list("", "a+b")]
    assert found == ["b", "c"]
    first, second = server.requests
    assert "start-after=a%2Bb" in first
    assert "continuation-token" not in first
    assert "continuation-token=to%2Fk%3Dn" in second
    assert "start-after" not in second
    assert "aws4-hmac-sha256 credential=key/" in server.heads[1]


def endless(entries: str) -> Answer:
    return listing(
        f"{entries}<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    )


@pytest.mark.parametrize(
    "entries",
    [entry("a"), entry("b") + entry("a"), "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>"],
    ids=["again", "back", "folders"],
)
def test_a_listing_that_does_not_advance_ends(entries: str) -> None:
    with faulty_s3(endless(entries)) as server:
        for read in (lambda s: list(s.list("")), lambda s: s.list_folder("")):
            with pytest.raises(StoreDown, match="out of order"):
                read(objects_of(server.host))
        assert len(server.requests) <= 4


def test_a_listing_of_empty_pages_ends() -> None:
    with faulty_s3(endless("")) as server:
        with pytest.raises(StoreDown, match="100 empty pages in a row"):
            list(objects_of(server.host).list("packs/"))
        assert len(server.requests) == 100


def test_a_listing_may_have_an_empty_page() -> None:
    last = listing(entry("c") + "<IsTruncated>false</IsTruncated>")
    with faulty_s3(endless(entry("b")), endless(""), last) as server:
        assert [info.key for info in objects_of(server.host).list("")] == ["b", "c"]


@pytest.mark.parametrize(
    "wrong",
    [
        listing("", root="html", space=""),
        answer("200 OK", b"<html>nothing here", "Content-Type: text/html"),
        answer("200 OK", b""),
        listing(entry("a") + "<IsTruncated>true</IsTruncated>"),
        listing("<Contents><Key>a</Key></Contents>"),
        listing(entry("a", "yesterday")),
    ],
    ids=["xhtml", "html", "nothing", "no token", "no size", "no time"],
)
def test_what_is_no_listing_is_a_store_down_and_not_an_empty_bucket(wrong) -> None:
    with faulty_s3(wrong) as server:
        for read in (lambda s: list(s.list("packs/")), lambda s: s.list_folder("packs/")):
            with pytest.raises(StoreDown, match="failed at packs/") as caught:
                read(objects_of(server.host))
            assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("404 Not Found", "NoSuchBucket", NoBucket),
        ("403 Forbidden", "SignatureDoesNotMatch", StoreRefused),
        ("403 Forbidden", "RequestTimeTooSkewed", StoreRefused),
    ],
)
def test_a_refused_listing_says_what_to_do(status: str, code: str, expected: type) -> None:
    with faulty_s3(error(status, code)) as server, pytest.raises(expected, match=code):
        list(objects_of(server.host).list("packs/"))


@pytest.mark.parametrize(
    ("status", "expected", "message"),
    [
        ("404 Not Found", NotFound, "no object a/b"),
        ("403 Forbidden", StoreRefused, "answered AccessDenied at a/b"),
        ("400 Bad Request", StoreDown, "failed at a/b: it answered 400"),
        ("200 OK", StoreDown, "failed at a/b"),
    ],
)
def test_a_head_without_an_object(status: str, expected: type, message: str) -> None:
    with faulty_s3(answer(status)) as server, pytest.raises(expected, match=message):
        objects_of(server.host).head("a/b")


ODD = [
    "a",
    "a-b",
    "a b+c=d,e",
    "a%20b",
    "a/b",
    "a//b",
    "a/é/ü",
    "a~!*'()",
    "a&b<c>",
    "a\tb\nc",
    "ä",
]


@pytest.mark.integration
@pytest.mark.parametrize("prefix", ["", "a", "a/", "a%", "a ", "a\t", "ä", "none"])
def test_lists_what_minio_lists(ceph, bucket: Settings, prefix: str) -> None:
    objects, minio = S3Objects(first_site(bucket)), minio_of(ceph)
    for key in ODD:
        objects.put(key, key.encode())

    def expected(after: str = "", recursive: bool = True) -> list[ObjectInfo]:
        found = minio.list_objects(
            objects.bucket, prefix, recursive=recursive, start_after=after or None
        )
        return [
            ObjectInfo(each.object_name, each.size, each.etag, each.last_modified) for each in found
        ]

    assert list(objects.list(prefix)) == expected()
    assert {info.key for info in objects.list("")} == set(ODD)
    for after in ODD:
        assert list(objects.list(prefix, after)) == expected(after)
    folder = objects.list_folder("a/")
    assert folder.folders == ["a//", "a/é/"]
    assert [info.key for info in folder.objects] == ["a/b"]


@pytest.mark.integration
def test_heads_what_minio_heads(ceph, bucket: Settings) -> None:
    objects, minio = S3Objects(first_site(bucket)), minio_of(ceph)
    read: Callable = minio.stat_object
    for key in ODD:
        objects.put(key, key.encode())
        found = read(objects.bucket, key)
        assert objects.head(key) == ObjectInfo(key, found.size, found.etag, found.last_modified)
