"""S3 as the object store: requests, signatures, listings, faults."""

__all__ = [
    "bucket",
    "minio_client",
    "signed_requests",
]
