"""The bucket that a benchmark stores its objects in."""

from concurrent.futures import ThreadPoolExecutor

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.store.open import open_objects
from stampede.store.s3.bucket import S3Objects

CLEARING_THREADS = 32


def open_bucket(settings: Settings) -> S3Objects:
    """The bucket of the settings. Raises `SetupError` if the store is not an S3 endpoint."""
    objects = open_objects(settings)
    if not isinstance(objects, S3Objects):
        raise SetupError(f"benchmarks need an S3 endpoint, not {settings.store}")
    return objects


def clear(bucket: S3Objects, prefix: str = "") -> None:
    """Delete everything under a prefix, so that the next round finds room."""
    with ThreadPoolExecutor(CLEARING_THREADS) as pool:
        list(pool.map(lambda info: bucket.delete(info.key), bucket.list(prefix)))
