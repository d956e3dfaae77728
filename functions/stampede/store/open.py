"""From a store's address to its objects."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from stampede.errors import SetupError
from stampede.settings import Settings
from stampede.store.directory import DirectoryObjects
from stampede.store.memory import MemoryObjects
from stampede.store.objects import Objects
from stampede.store.s3 import S3Objects


def open_objects(settings: Settings) -> Objects:
    """The objects at `settings.store`: an S3 bucket, ``file:///DIRECTORY``, or ``memory:``.

    Nothing is asked of the store yet. Raises `SetupError` for any other address, and
    for keys or a region that cannot be.
    """
    return _open(
        settings.store,
        settings.access_key,
        settings.secret_key.get_secret_value(),
        settings.region,
        settings.ca_file,
    )


def open_replica(settings: Settings) -> Objects:
    """The objects of the second site, `settings.replica`. Raises `SetupError` where it is none."""
    if not settings.replica:
        raise SetupError("there is no second site: set STAMPEDE_REPLICA to its store")
    if settings.replica == settings.store:
        raise SetupError("STAMPEDE_REPLICA is the first site itself")
    return _open(
        settings.replica,
        settings.replica_access_key,
        settings.replica_secret_key.get_secret_value(),
        settings.replica_region,
        settings.replica_ca_file,
    )


def _open(url: str, access_key: str, secret_key: str, region: str, ca_file: Path | None) -> Objects:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") and parts.netloc and parts.path.strip("/"):
        try:
            return S3Objects(url, access_key, secret_key, region, ca_file)
        except ValueError as error:  # not the whole address, which may have a password in it
            where = f"{parts.hostname}{parts.path}"
            raise SetupError(f"the store at {where} cannot be used: {error}") from None
    if parts.scheme == "file" and parts.path.strip("/") and not parts.netloc:
        return DirectoryObjects(Path(unquote(parts.path)))
    if parts.scheme == "memory":
        return MemoryObjects()
    raise SetupError(f"not a store: {url!r}; give http(s)://HOST:PORT/BUCKET or file:///DIRECTORY")
