"""A client of a Ceph that shares no code with the product."""

from minio import Minio

from stampede_local.ceph import LocalCeph


def minio_of(ceph: LocalCeph) -> Minio:
    """An S3 client of a Ceph."""
    return Minio(
        endpoint=ceph.endpoint.removeprefix("http://"),
        access_key=ceph.keys.access_key,
        secret_key=ceph.keys.secret_key,
        secure=False,
        region="us-east-1",
    )
