"""A release whose image is one small file, for two architectures."""

import subprocess
import sys
from pathlib import Path

import yaml

from e2e.cluster.built.binaries import tool
from e2e.places import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from images.archive import write_program
from releases.archives import digests, pack_chart
from releases.provenance import provenance, text

VERSION = yaml.safe_load((ROOT / "charts" / "stampede" / "Chart.yaml").read_text())["version"]
PUBLISH = str(ROOT / "tools" / "publish")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PATH = "sky/alerts"  # within the registry


class Dist:
    """A release in a directory, whose image is one small file."""

    def __init__(self, directory: Path, registry: str) -> None:
        self.directory = directory
        directory.mkdir()
        self.pack(registry)
        self.add_provenance(changed=False)
        for architecture in ("amd64", "arm64"):
            self.add_image(architecture, "the program")

    def pack(self, registry: str) -> None:
        """Make the chart for a registry, ``HOST/PATH``."""
        chart = ROOT / "charts" / "stampede"
        pack_chart(chart, str(tool("helm")), self.directory, 1, registry)
        self.sum()

    def add_provenance(self, changed: bool) -> None:
        made = text(provenance(ROOT, VERSION, COMMIT, changed))
        (self.directory / f"stampede-{VERSION}.provenance.json").write_text(made)
        self.sum()

    def add_image(self, architecture: str, content: str, name: str = "") -> Path:
        scratch = self.directory.with_name("scratch")
        (scratch / "files").mkdir(parents=True, exist_ok=True)
        (scratch / "files" / "app").write_text(f"{content} of {architecture}")
        archive = self.directory / f"stampede-{VERSION}.{name or architecture}.image.tar"
        tag = f"dev.local/stampede:{VERSION}"
        write_program(scratch / "files", tag, archive, of=architecture)
        self.sum()
        return archive

    def sum(self) -> None:
        (self.directory / "SHA256SUMS").unlink(missing_ok=True)
        (self.directory / "SHA256SUMS").write_text(digests(self.directory))


def make_key(path: Path) -> Path:
    """A private key as the help of tools/publish says, and its public one beside it."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    line = ["openssl", "pkey", "-in", str(path), "-pubout", "-out", str(path.with_suffix(".pub"))]
    subprocess.run(line, check=True)
    return path


def skopeo(*arguments: object) -> bytes:
    return subprocess.run(["skopeo", *arguments], check=True, capture_output=True).stdout


def raw(name: str) -> bytes:
    """The manifest that a registry has under a name."""
    return skopeo("inspect", "--tls-verify=false", "--raw", f"docker://{name}")
