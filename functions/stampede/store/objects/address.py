"""The address of a site's store and the keys for access to it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from stampede.addresses import shown

KEY_FILES = ("access-key", "secret-key")
"""The files in `StoreAddress.keys`."""


@dataclass(frozen=True, repr=False)
class StoreAddress:
    """The address of one site's store.

    Attributes
    ----------
    url
        ``http(s)://HOST:PORT/BUCKET`` for an S3 endpoint, ``file:///DIRECTORY``, or ``memory:``.
    ca_file
        PEM of the authority that signed an https endpoint's certificate, if not a public one. Then
        it is the only one that is trusted.
    keys
        Directory from which the two keys came, and are read again when the store refuses them; ""
        if they never change.
    """

    url: str
    access_key: str = ""
    secret_key: str = ""
    region: str = "us-east-1"
    ca_file: Path | None = None
    keys: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self.url)!r}, {self.access_key!r}, {self.region!r})"

    def as_first_site(self) -> dict[str, Any]:
        """The values of `Settings` that make this the first site."""
        return {
            "store": self.url,
            "access_key": self.access_key,
            "secret_key": SecretStr(self.secret_key),
            "region": self.region,
            "ca_file": self.ca_file,
            "keys": self.keys,
        }

    def as_second_site(self) -> dict[str, Any]:
        """The values of `Settings` that make this the second site."""
        first = self.as_first_site()
        url = first.pop("store")
        return {"replica": url} | {f"replica_{name}": value for name, value in first.items()}
