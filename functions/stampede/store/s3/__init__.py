"""S3 as the object store: requests, signatures, listings, faults."""

__all__ = [
    "bucket",
    "faults",
    "listings",
    "minio_client",
    "signed_requests",
]
