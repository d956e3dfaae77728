"""The node's certificates, and its kubeconfig."""

import base64
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from e2e.cluster.places import API_SERVICE, KUBECONFIG, LOGS, NODE, NODE_IP, PKI
from e2e.cluster.steps import run

_DAYS = 3650
_API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


class _Certificate(NamedTuple):
    name: str
    subject: str
    extension: str = "extendedKeyUsage=clientAuth"


_CERTIFICATES = (
    _Certificate(
        "apiserver",
        "/CN=kube-apiserver",
        "subjectAltName="
        + ",".join(f"DNS:{name}" for name in _API_NAMES)
        + f",IP:{API_SERVICE},IP:{NODE_IP},IP:127.0.0.1",
    ),
    _Certificate("admin", "/O=system:masters/CN=admin"),
    _Certificate("front-proxy", "/CN=front-proxy-client"),
    _Certificate("kubelet", f"/CN={NODE}", f"subjectAltName=DNS:{NODE},IP:{NODE_IP}"),
)


def write() -> None:
    """Write all certificates and the kubeconfig, unless the kubeconfig exists."""
    if KUBECONFIG.exists():
        return
    PKI.mkdir(parents=True, exist_ok=True)
    PKI.chmod(0o700)
    new_key = ("-newkey", "rsa:2048", "-nodes")
    ca = ("-keyout", PKI / "ca.key", "-out", PKI / "ca.crt")
    _openssl("req", "-x509", *new_key, "-days", _DAYS, "-subj", "/CN=stampede-e2e", *ca)
    _openssl("genrsa", "-out", PKI / "accounts.key", 2048)
    _openssl("rsa", "-in", PKI / "accounts.key", "-pubout", "-out", PKI / "accounts.pub")
    for each in _CERTIFICATES:
        _sign(each, new_key)
    partial = KUBECONFIG.with_suffix(".partial")
    partial.touch(0o600)
    partial.write_text(json.dumps(_kubeconfig(), indent=1))
    partial.rename(KUBECONFIG)


def _sign(each: _Certificate, new_key: tuple[str, ...]) -> None:
    request = PKI / f"{each.name}.csr"
    key, certificate = PKI / f"{each.name}.key", PKI / f"{each.name}.crt"
    _openssl("req", *new_key, "-subj", each.subject, "-keyout", key, "-out", request)
    with tempfile.NamedTemporaryFile("w", suffix=".ext") as extension:
        extension.write(each.extension)
        extension.flush()
        authority = ("-CA", PKI / "ca.crt", "-CAkey", PKI / "ca.key", "-CAcreateserial")
        given = ("-days", _DAYS, "-extfile", extension.name)
        _openssl("x509", "-req", "-in", request, *authority, *given, "-out", certificate)
    request.unlink()


def _openssl(*arguments: object) -> None:
    run("openssl", *arguments, log=LOGS / "openssl.log")


def _kubeconfig() -> dict[str, object]:
    """The kubeconfig's content, written as JSON, which YAML parsers read."""
    name = "stampede-e2e"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": f"https://{NODE_IP}:6443",
                    "certificate-authority-data": _base64(PKI / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _base64(PKI / "admin.crt"),
                    "client-key-data": _base64(PKI / "admin.key"),
                },
            }
        ],
    }


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
