"""An issuer of tokens with real keys: an HTTP server, or as Kubernetes' an HTTPS one."""

import json
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


class TokenIssuer:
    """Listens on loopback while entered.

    Parameters
    ----------
    name
        What it calls itself; default: its URL.
    secret
        The bearer token without which it answers 403.
    certificate
        Where to write the certificate of an HTTPS server, which is its own authority.
    """

    def __init__(self, name: str = "", secret: str = "", certificate: Path | None = None) -> None:
        self.keys: dict[str, Any] = {"one": rsa.generate_private_key(65537, 2048)}
        self.asked, self.down, self.secret = 0, False, secret
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += self.path == "/keys"
                self.send_response(issuer.status(self.headers.get("authorization", "")))
                self.end_headers()
                self.wfile.write(json.dumps(issuer.document(self.path)).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        if certificate:
            self.url = self.url.replace("http:", "https:")
            self.server.socket = _trust(certificate).wrap_socket(
                self.server.socket, server_side=True
            )
        self.issuer = name or self.url

    def __enter__(self) -> "TokenIssuer":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def status(self, authorization: str) -> int:
        """The status of a response."""
        if self.secret and authorization != f"Bearer {self.secret}":
            return 403
        return 500 if self.down else 200

    def document(self, path: str) -> dict[str, Any]:
        """Its description, or its public keys."""
        if path != "/keys":
            return {"issuer": self.issuer, "jwks_uri": f"{self.url}/keys"}
        keys: list[dict[str, Any]] = [{"kty": "odd", "kid": "odd"}]
        for name, key in self.keys.items():
            kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            keys.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": name})
        return {"keys": keys}

    def token(
        self, kid: str = "one", key: Any = None, algorithm: str = "RS256", **claims: Any
    ) -> str:
        """A token; a claim that is None is left out."""
        claims = {
            "iss": self.issuer,
            "aud": "stampede",
            "sub": "mira",
            "exp": time.time() + 300,
            "scope": "openid stampede:cutouts",
            **claims,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        key = self.keys[kid] if key is None else key
        return jwt.encode(claims, key, algorithm, headers={"kid": kid})


def _trust(certificate: Path) -> ssl.SSLContext:
    """Of a server whose new certificate is written to `certificate`, its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    private = certificate.with_suffix(".key")
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    return context
