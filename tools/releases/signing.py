"""Signatures and provenance beside what they are about, in a registry, as cosign keeps them.

Formats: cosign's signature specification, DSSE (Dead Simple Signing Envelope), in-toto's Statement
1, SLSA's provenance 1. The key is Ed25519, so the same content has the same signature.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from releases.layout import CONFIG, Blob, Layout

PREDICATE = "https://slsa.dev/provenance/v1"
_STATEMENT = "application/vnd.in-toto+json"
_PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
_ENVELOPE = "application/vnd.dsse.envelope.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"


class Signer:
    """Signs with the Ed25519 private key in a PEM file.

    Raises `ValueError` if the file has none, `OSError` if it cannot be read.
    """

    def __init__(self, file: Path) -> None:
        try:
            key = load_pem_private_key(file.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{file} is not a private key in PEM: {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(
                f"{file} is not an Ed25519 key; `openssl genpkey -algorithm ed25519` makes one"
            )
        self._key = key

    def signature(self, layout: Layout, repository: str, digest: str) -> Blob:
        """Add to a layout the signature of what has `digest` in a repository."""
        payload = _json(
            {
                "critical": {
                    "identity": {"docker-reference": repository},
                    "image": {"docker-manifest-digest": digest},
                    "type": "cosign container image signature",
                },
                "optional": None,
            }
        )
        return _add(layout, payload, _PAYLOAD, {_SIGNATURE: self._sign(payload)})

    def attestation(
        self, layout: Layout, repository: str, digest: str, predicate: Mapping[str, Any]
    ) -> Blob:
        """Add to a layout the signed statement of how what has `digest` was made."""
        statement = _json(
            {
                "_type": "https://in-toto.io/Statement/v1",
                "predicateType": PREDICATE,
                "subject": [
                    {"name": repository, "digest": {"sha256": digest.removeprefix("sha256:")}}
                ],
                "predicate": predicate,
            }
        )
        # What DSSE signs: the type and the statement, each after its length.
        signed = b"DSSEv1 %d %s %d %s" % (
            *(len(_STATEMENT), _STATEMENT.encode()),
            *(len(statement), statement),
        )
        envelope = {
            "payloadType": _STATEMENT,
            "payload": base64.b64encode(statement).decode(),
            "signatures": [{"keyid": "", "sig": self._sign(signed)}],
        }
        annotations = {_SIGNATURE: "", "predicateType": PREDICATE}
        return _add(layout, _json(envelope), _ENVELOPE, annotations)

    def _sign(self, content: bytes) -> str:
        return base64.b64encode(self._key.sign(content)).decode()


def tag(digest: str, kind: str) -> str:
    """The tag under which cosign looks for `kind`, ``sig`` or ``att``, of what has `digest`."""
    return f"{digest.replace(':', '-')}.{kind}"


def _add(layout: Layout, content: bytes, media_type: str, annotations: Mapping[str, str]) -> Blob:
    blob = layout.add(content, media_type)
    config = {
        **{"architecture": "", "os": "", "created": "1970-01-01T00:00:00Z", "config": {}},
        "rootfs": {"type": "layers", "diff_ids": [blob.digest]},
    }
    described = blob.descriptor(annotations=dict(annotations))
    return layout.add_manifest(layout.add_document(config, CONFIG), [described])


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
