"""What only Ceph has: users, quotas, notifications of a bucket."""

__all__ = [
    "bucket_notifications",
    "quotas",
    "users",
]
