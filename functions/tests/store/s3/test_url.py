"""Addresses of S3 buckets, compared with what minio-py takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minio import Minio
from minio.helpers import check_bucket_name

from stampede.store.objects.address import StoreAddress
from stampede.store.s3.url import checked_url, host_of

NAMES = st.text("abAB019.-_: \n/s3alis", max_size=66) | st.sampled_from(
    ["1.2.3.4", "1.2.3.400", "01.2.3.4", "a..b", "a.-b", "abc-s3alias", "abc--ol-s3", "xn--abc"]
)


def refused(act, *arguments, **more) -> bool:
    try:
        act(*arguments, **more)
    except ValueError:
        return True
    return False


@given(NAMES.filter(lambda name: not set("/\n ") & set(name)))
def test_takes_the_names_of_buckets_that_minio_takes(name: str) -> None:
    address = StoreAddress(f"http://host/{name}", "key", "secret")
    assert refused(checked_url, address) == refused(check_bucket_name, name)


@pytest.mark.parametrize(
    "url",
    [
        "http://host/b-1",
        "http://host:80/b-1",
        "https://host:443/b-1",
        "http://host:443/b-1",
        "http://[::1]:80/b-1",
        "https://h.example:8443/b-1",
    ],
)
def test_the_host_is_that_of_minio(url: str) -> None:
    found = checked_url(StoreAddress(url))
    client = Minio(found.netloc, secure=found.scheme == "https", region="us-east-1")
    expected = client._base_url.host
    assert host_of(found) == (expected if "::" not in expected else f"[{expected.strip('[]')}]")


@pytest.mark.parametrize("region", ["us-east-1", "a_b", "-a", "a-", "default", "a.b", "", "x" * 64])
def test_takes_the_regions_that_minio_takes(region: str) -> None:
    address = StoreAddress("http://host/bucket", "key", "secret", region)
    assert refused(checked_url, address) == refused(Minio, "host", region=region)
