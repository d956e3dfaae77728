"""From settings to the stores of the two sites."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from stampede.addresses import shown
from stampede.config.secret_files import read_keys
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.store.objects.address import KEY_FILES, StoreAddress
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.s3.bucket import S3Objects


def first_site(settings: Settings) -> StoreAddress:
    """The address of the store. Raises `SetupError` if the files of its keys cannot be read."""
    keys = read_keys(settings.keys, KEY_FILES)
    access, secret = keys or (settings.access_key, settings.secret_key.get_secret_value())
    region, ca_file = settings.region, settings.ca_file
    return StoreAddress(settings.store, access, secret, region, ca_file, settings.keys)


def second_site(settings: Settings) -> StoreAddress:
    """The address of the second site's store; its `url` is empty if there is none.

    Raises as `first_site`.
    """
    return first_site(settings.of_second_site())


def open_objects(settings: Settings) -> Objects:
    """The objects of the store. Raises `SetupError` as `open_store` does."""
    return open_store(first_site(settings))


def open_replica(settings: Settings) -> Objects:
    """The objects of the second site. Raises `SetupError` if there is none, or as `open_store`."""
    if not settings.replica:
        raise SetupError("there is no second site: set STAMPEDE_REPLICA to its store")
    if settings.replica == settings.store:
        raise SetupError("STAMPEDE_REPLICA is the first site itself")
    return open_store(second_site(settings))


def open_store(address: StoreAddress) -> Objects:
    """The objects at an address, without a request to the store.

    Raises `SetupError` if the URL is of no known kind, or if keys or region are malformed.
    """
    url = urlsplit(address.url)
    if url.scheme in ("http", "https") and url.netloc and url.path.strip("/"):
        try:
            return S3Objects(address)
        except ValueError as error:  # leave out the rest of the URL: it may hold a password
            where = f"{url.hostname}{url.path}"
            raise SetupError(
                f"the store at {where} cannot be used: {error}{_advice(error)}"
            ) from None
    if url.scheme == "file" and url.path.strip("/") and not url.netloc:
        return DirectoryObjects(Path(unquote(url.path)))
    if url.scheme == "memory":
        return MemoryObjects()
    raise SetupError(
        f"not a store: {shown(address.url)!r}; give http(s)://HOST:PORT/BUCKET or file:///DIRECTORY"
    )


def prepare_writes(address: StoreAddress) -> None:
    """Import now what the first write there would import: 100 ms for a bucket."""
    if urlsplit(address.url).scheme in ("http", "https"):
        import stampede.store.s3.minio_client  # noqa: F401


def _advice(error: ValueError) -> str:
    """What to do about a malformed name of a bucket, which minio-py only calls invalid."""
    if "bucket name" not in str(error):
        return ""
    return "; a bucket has 3 to 63 lower-case letters, digits, dots and hyphens, and no folder"
