"""HTTPS on one machine: self-signed certificates, and a Ceph whose gateway has one."""

import subprocess
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from stampede.config.settings import Settings
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a self-signed certificate of 127.0.0.1, valid for two days, and its key."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=stampede", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )


class TlsCeph(LocalCeph):
    """A Ceph whose gateway speaks HTTP on `port` and HTTPS on `tls_port`."""

    @cached_property
    def tls_port(self) -> int:
        """Port of the HTTPS endpoint."""
        return free_port()

    @property
    def certificate(self) -> Path:
        """The certificate that clients have to trust; made at each start."""
        return self.directory.with_suffix(".pem")

    def settings(self, scheme: str, port: int, bucket: str = "bench") -> Settings:
        """Settings that reach a bucket through a port, which may be that of a proxy."""
        address = replace(
            self.address(bucket),
            url=f"{scheme}://127.0.0.1:{port}/{bucket}",
            ca_file=self.certificate if scheme == "https" else None,
        )
        return Settings().model_copy(update=address.as_first_site())

    def _frontend(self) -> str:
        key = self.certificate.with_suffix(".key")
        make_certificate(self.certificate, key)
        tls = f"ssl_endpoint=127.0.0.1:{self.tls_port} ssl_certificate={self.certificate}"
        return f"{super()._frontend()} {tls} ssl_private_key={key}"
