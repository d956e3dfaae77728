"""Signatures of proofs: Ed25519 (RFC 8032) over canonical JSON (RFC 8785).

A proof has numbers that are integers, and text of ASCII: so the JSON of RFC 8785 is that of Python
with sorted keys and without white space.

`cryptography` is imported with the first signature: a `read` without proofs does not have its
compiled code in memory (docs/measurements/0054-native-code.md).
"""

import base64
import json
import os
from pathlib import Path
from typing import Any

from stampede.errors import SetupError


def canonical(value: Any) -> bytes:
    """The one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class SigningKey:
    """An Ed25519 private key in a PEM file, as ``openssl genpkey -algorithm ed25519`` writes it.

    Raises `SetupError` if the file has none.
    """

    def __init__(self, pem: bytes, name: str) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise SetupError(f"{name} is not a private key in PEM: {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise SetupError(f"{name} is not an Ed25519 key")
        self._key = key

    @classmethod
    def read(cls, path: str) -> "SigningKey | None":
        """The key in a file; None without a path. Raises `SetupError`."""
        if not path:
            return None
        try:
            return cls(Path(path).read_bytes(), path)
        except OSError as error:
            raise SetupError(f"the key in {path} cannot be read: {error.strerror}") from None

    @property
    def public_key(self) -> str:
        """Its public key, 32 bytes as base64."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, data: bytes) -> str:
        """The signature of these bytes, as base64."""
        return base64.b64encode(self._key.sign(data)).decode()


def make_key() -> bytes:
    """A new private key, as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_key(file: Path) -> SigningKey:
    """Write a new private key to a file that only its owner can read.

    Raises `SetupError` if the file is there, or cannot be written.
    """
    pem = make_key()
    try:
        with open(file, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write(pem)
    except OSError as error:
        raise SetupError(f"{file}: {error.strerror}") from None
    return SigningKey(pem, str(file))


def is_signed(data: bytes, signature: str, public_key: str) -> bool:
    """Whether the owner of a public key has signed these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), data)
    except (InvalidSignature, ValueError):
        return False
    return True
