"""The `stampede up` of this machine: its server and its bucket, without addresses and keys."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from stampede_client.bucket import Errors, reaching
from stampede_client.client import Client
from stampede_client.errors import BadInput
from stampede_client.image_planes import Images, images
from stampede_client.store import Detections, detections

UP = "up.json"
"""The file in which `stampede up` writes how to reach it."""
OTHERS = "others"
"""Folder of the usual directory: a file for each `up` that keeps its data elsewhere."""
KEY_FILES = ("access-key", "secret-key")


@dataclass(frozen=True)
class LocalBucket:
    """The bucket of a `stampede up`.

    Attributes
    ----------
    url
        ``http(s)://HOST:PORT/BUCKET``, or ``file:///DIRECTORY``.
    path
        The bucket in `filesystem`: its name, or the directory.
    filesystem
        For `pyarrow`, with keys and endpoint.
    storage_options
        For `polars.scan_parquet`, with keys and endpoint; None for a directory.
    """

    url: str
    path: str
    filesystem: fs.FileSystem = field(repr=False)
    storage_options: dict[str, str] | None = field(repr=False)

    def folders(self, prefix: str) -> list[str]:
        """The folders below a prefix, for `polars.scan_parquet` with `storage_options`.

        Raises
        ------
        Unavailable
            If the store fails.
        """
        with reaching(self.url):
            selector = fs.FileSelector(f"{self.path}/{prefix.strip('/')}", allow_not_found=True)
            found = self.filesystem.get_file_info(selector)
        scheme = "" if self.storage_options is None else "s3://"
        return sorted(f"{scheme}{one.path}" for one in found if one.type == fs.FileType.Directory)

    def detections(self, errors: Errors = "raise") -> Detections:
        """A reader of its light curves: see `stampede_client.detections`."""
        return detections(self.path, self.filesystem, errors=errors)

    def images(self, **options: Any) -> Images:
        """Cutouts of many alerts as one array: see `stampede_client.images` for the options."""
        return images(self.path, self.filesystem, **options)


class LocalClient(Client):
    """A `Client` of the server of a `stampede up`; `bucket` reads what that stores, without it.

    Attributes
    ----------
    bucket
        A `LocalBucket`.
    """

    def __init__(self, url: str, bucket: LocalBucket, token: str | None) -> None:
        super().__init__(url, token, timeout=60.0, strict=False)
        self.bucket = bucket


def local(data: str | Path | None = None, token: str | None = None) -> LocalClient:
    """A client of the `stampede up` that runs on this machine.

    Without `data` it is the one that commands use: that with its data in the usual directory, or
    the only one that keeps them elsewhere.

    Parameters
    ----------
    data
        Directory that `stampede up` was given by ``--data``.
    token
        Bearer token, if its server demands one.

    Raises
    ------
    BadInput
        If none runs there, or if several do and none of them in the usual directory.
    """
    usual = _usual_directory()
    named = data or os.environ.get("STAMPEDE_DATA")
    found = _recorded(Path(named or usual))
    if found is None and named is None:
        found = _elsewhere(usual / OTHERS)
    if found is None:
        where = f" with its data in {named}" if named else ""
        raise BadInput(
            f"no `stampede up` runs here{where}: start it, or name its --data with "
            "local(data=...); a server elsewhere is stampede_client.connect(URL)"
        )
    return LocalClient(found["urls"]["read"], _bucket(found), token)


def _usual_directory() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "stampede"


def _recorded(data: Path) -> dict[str, Any] | None:
    """What the `up` of a directory says of itself; None if it does not run."""
    try:
        recorded: dict[str, Any] = json.loads((data / UP).read_text())
        os.kill(recorded["pid"], 0)  # raises if no such process runs
    except (OSError, ValueError, KeyError):
        return None
    return recorded


def _elsewhere(notes: Path) -> dict[str, Any] | None:
    """The only `up` that keeps its data elsewhere. Raises `BadInput` if there are several."""
    found = {}
    for note in sorted(notes.glob("*")):
        data = note.read_text()
        if recorded := _recorded(Path(data)):
            found[data] = recorded
    if len(found) > 1:
        raise BadInput(
            f"several `stampede up` run here: choose one with local(data=...): {', '.join(found)}"
        )
    for data, recorded in found.items():
        print(f"using the `stampede up` of {data}", file=sys.stderr)
        return recorded
    return None


def _bucket(up: dict[str, Any]) -> LocalBucket:
    url: str = up["store"]
    if url.startswith("file://"):
        return LocalBucket(url, url.removeprefix("file://"), fs.LocalFileSystem(), None)
    parts = urlsplit(url)
    access_key, secret_key = _keys(up)
    region, ca_file = up.get("region") or "us-east-1", up.get("ca_file")
    filesystem = fs.S3FileSystem(
        endpoint_override=parts.netloc,
        scheme=parts.scheme,
        access_key=access_key,
        secret_key=secret_key,
        region=region,
        tls_ca_file_path=ca_file,
    )
    options = {
        "aws_endpoint_url": f"{parts.scheme}://{parts.netloc}",
        "aws_access_key_id": access_key,
        "aws_secret_access_key": secret_key,
        "aws_region": region,
        "aws_allow_http": "true" if parts.scheme == "http" else "false",
    }
    return LocalBucket(url, parts.path.strip("/"), filesystem, options)


def _keys(up: dict[str, Any]) -> tuple[str, str]:
    """Access key and secret key, also where they are files."""
    if not up.get("keys"):
        return up["access_key"], up["secret_key"]
    folder = Path(up["keys"])
    try:
        access_key, secret_key = ((folder / name).read_text().strip() for name in KEY_FILES)
    except OSError as error:
        raise BadInput(f"the keys in {folder} cannot be read: {error.strerror}") from None
    return access_key, secret_key
