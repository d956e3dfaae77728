"""A Prometheus on this machine, of Debian's package, which is taken apart and not installed."""

import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from e2e.commands import until
from e2e.http import get, get_json
from e2e.places import ROOT
from stampede_local.ports import free_port


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return b"Ready" in get(f"{self.url}/-/ready")
        except OSError:
            return False

    def query(self, query: str) -> list[dict[str, Any]]:
        """The result of a query, for now."""
        response = get_json(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
        assert response["status"] == "success", response
        return response["data"]["result"]

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        alerts = get_json(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


def targets(urls: dict[str, str], namespace: str) -> list[dict[str, Any]]:
    """Targets of the processes at these URLs, with the labels that the chart's PodMonitors give.

    The source of `stampede up` is ``source``, and ``alerts`` in the labels; others ``source-NAME``.
    """
    found = []
    for name, url in urls.items():
        kind, _, of = name.partition("-")
        labels = {"component": kind, "namespace": namespace, "pod": name}
        if kind == "source":
            labels["source"] = of or "alerts"
        found.append({"targets": [urlsplit(url).netloc], "labels": labels})
    return found


@contextmanager
def prometheus(directory: Path, configuration: dict[str, Any]) -> Iterator[Prometheus]:
    """Start Prometheus with its data in a new directory; stop it in the end."""
    find = subprocess.run([ROOT / "tools" / "prometheus"], stdout=subprocess.PIPE, text=True)
    assert not find.returncode, "Prometheus cannot be had: see above"
    directory.mkdir()
    file, port = directory / "prometheus.yml", free_port()
    file.write_text(yaml.safe_dump(configuration))
    line = (
        *(find.stdout.strip(), f"--config.file={file}", f"--storage.tsdb.path={directory}/data"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
    )
    with (directory / "log").open("w") as log, subprocess.Popen(line, stderr=log) as process:
        try:
            started = Prometheus(f"http://127.0.0.1:{port}")
            until(lambda: started.is_ready or process.poll() is not None, 60)
            assert process.poll() is None, (directory / "log").read_text()
            yield started
        finally:
            process.terminate()
