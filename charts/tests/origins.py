"""Where schemas come from: what a cluster's API servers would say, out of pinned packages.

`python charts/tests/origins.py` fetches all of it, and says so; the tests find it in the user's
cache. Go modules come from wherever Go takes them, Maven's packages from wherever Maven does.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

Say = Callable[[str], None]
Documents = list[dict[str, Any]]

CONTROLLER_GEN = "sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1"


class Origin(Protocol):
    """Something that defines kinds."""

    def fetch(self, directory: Path) -> Documents:
        """Its definitions, worked out in an empty directory. Raises `Unavailable`."""


class Unavailable(Exception):
    """An origin could not be fetched; the message says why."""


class Module(NamedTuple):
    """A Go module, and the files in it that define kinds."""

    path: str
    version: str
    files: tuple[str, ...]  # globs

    def __str__(self) -> str:
        return f"Go module {self.path}@{self.version}"

    def fetch(self, directory: Path) -> Documents:
        """What its files say."""
        source = download(self.path, self.version, directory)
        return read(file for glob in self.files for file in sorted(source.glob(glob)))


class Types(NamedTuple):
    """A Go module whose CRDs are made of its Go types, as its own build makes them."""

    path: str
    version: str
    package: str
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"Go types of {self.path}@{self.version}"

    def fetch(self, directory: Path) -> Documents:
        """What controller-gen makes of its types; building that takes half a minute."""
        source, made = directory / "source", directory / "crds"
        shutil.copytree(
            download(self.path, self.version, directory), source, copy_function=shutil.copyfile
        )
        for each in (source, *source.rglob("*/")):  # Go's cache is read-only
            each.chmod(0o755)
        paths, out = f"paths=./{self.package}", f"output:crd:dir={made}"
        run("go", "run", CONTROLLER_GEN, "crd:allowDangerousTypes=true", paths, out, cwd=source)
        return [each for each in read(made.glob("*.yaml")) if kind(each) in self.kinds]


class Strimzi(NamedTuple):
    """Strimzi's kinds, made of its Java classes by its own generator."""

    version: str
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"Java classes of Strimzi {self.version}"

    def fetch(self, directory: Path) -> Documents:
        """What the generator makes of them; 31 MB by Maven."""
        project = directory / "pom.xml"
        project.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>stampede</groupId>"
            "<artifactId>schemas</artifactId><version>1</version><dependencies>"
            f"{dependency('api', self.version)}{dependency('crd-generator', self.version)}"
            "</dependencies></project>"
        )
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={directory}/jars")
        run("mvn", "--quiet", "--batch-mode", f"--file={project}", *copy, cwd=directory)
        classes = [
            f"io.strimzi.api.kafka.model.{name}={directory}/{name}.yaml" for name in self.kinds
        ]
        generator = "io.strimzi.crdgenerator.CrdGenerator"
        run("java", "-cp", f"{directory}/jars/*", generator, "--yaml", *classes, cwd=directory)
        return read(directory.glob("*.yaml"))


KUBERNETES = Module("k8s.io/kubernetes", "v1.34.4", ("api/openapi-spec/swagger.json",))
# Knative 1.20 is 0.47 as modules.
CUSTOM: tuple[Origin, ...] = (
    Module(
        "knative.dev/serving",
        "v0.47.0",
        (
            "config/core/300-resources/*.yaml",
            "config/core/configmaps/features.yaml",
            "pkg/apis/autoscaling/register.go",
        ),
    ),
    Module("knative.dev/eventing", "v0.47.0", ("config/core/resources/*.yaml",)),
    Module(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        tuple(
            f"example/prometheus-operator-crd/monitoring.coreos.com_{kinds}.yaml"
            for kinds in ("servicemonitors", "podmonitors", "prometheusrules")
        ),
    ),
    # Of Rook only the types are a module that can be had; these fields have not changed since.
    Types(
        "github.com/rook/rook/pkg/apis",
        "v0.0.0-20231204200402-5287527732f7",
        "ceph.rook.io/v1",
        ("CephObjectStoreUser", "CephBucketTopic", "CephBucketNotification"),
    ),
    Module(
        "github.com/kube-object-storage/lib-bucket-provisioner",
        "v0.0.0-20221122204822-d1a8c34382f1",
        ("deploy/crds/*_objectbucketclaim_crd.yaml",),
    ),
    # The last release whose generator is a package.
    Strimzi("0.45.0", ("topic.KafkaTopic", "user.KafkaUser")),
)


def definitions(say: Say = print) -> tuple[dict[str, Any], Documents]:
    """Kubernetes' own OpenAPI definitions, and the objects that the others install."""
    ((built_in,), *others) = (kept(origin, say) for origin in (KUBERNETES, *CUSTOM))
    return built_in["definitions"], [each for documents in others for each in documents]


def kept(origin: Origin, say: Say) -> Documents:
    """What an origin defines, out of the user's cache if it is there."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = blake2b(repr((CONTROLLER_GEN, origin)).encode(), digest_size=8).hexdigest()
    cached = home / "stampede" / "schemas" / f"{name}.json"
    if not cached.exists():
        say(f"schemas out of {origin}")
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached.parent) as directory:
            whole = Path(directory) / "whole.json"
            whole.write_text(json.dumps(origin.fetch(Path(directory))))
            whole.rename(cached)
    return json.loads(cached.read_text())


def download(path: str, version: str, directory: Path) -> Path:
    """Where Go keeps a module, fetched from wherever it takes modules."""
    told = run("go", "mod", "download", "-json", f"{path}@{version}", cwd=directory)
    return Path(json.loads(told)["Dir"])


def run(*command: str, cwd: Path) -> str:
    """What a program says. Raises `Unavailable`."""
    if shutil.which(command[0]) is None:
        raise Unavailable(f"this needs {command[0]}")
    # A workspace or a flag of who runs this is not meant for it.
    environment = os.environ | {"GOWORK": "off", "GOFLAGS": "-mod=mod"}
    told = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    if told.returncode:
        last = (told.stderr or told.stdout).strip().splitlines()[-5:]
        raise Unavailable(f"{' '.join(command[:4])} …: " + " / ".join(last))
    return told.stdout


def dependency(artifact: str, version: str) -> str:
    """A package of Strimzi's, as Maven wants to be told."""
    return (
        "<dependency><groupId>io.strimzi</groupId>"
        f"<artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
    )


def kind(document: dict[str, Any]) -> str:
    """The kind that a CustomResourceDefinition defines."""
    return document["spec"]["names"]["kind"]


def read(files: Iterable[Path]) -> Documents:
    """The documents in these files."""
    return list(_documents(files))


def _documents(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for file in files:
        if file.suffix == ".json":
            yield json.loads(file.read_text())
        elif file.suffix == ".go":
            yield {"kind": "Source", "metadata": {"name": file.name}, "text": file.read_text()}
        else:
            yield from filter(None, yaml.load_all(file.read_text(), loader))


if __name__ == "__main__":
    try:
        definitions(lambda line: print(line, file=sys.stderr))
    except Unavailable as error:
        sys.exit(f"schemas: {error}")
