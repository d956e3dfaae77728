"""Origins of schemas: pinned packages that define the kinds a cluster's API servers know.

`python charts/tests/origins.py` fetches all packages with the user's Go and Maven. The tests read
the schemas from the user's cache.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
from e2e.cluster.built.go_modules import copy_sources, download
from e2e.cluster.places import CACHE, LOGS
from e2e.cluster.steps import Failed, run

Progress = Callable[[str], None]
Documents = list[dict[str, Any]]

CONTROLLER_GEN = "sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1"


class Origin(Protocol):
    """A package that defines kinds."""

    def fetch(self, directory: Path) -> Documents:
        """The package's definitions. Works in an empty directory. Raises `Failed`."""


class Module(NamedTuple):
    """A Go module with files that define kinds."""

    path: str
    version: str
    files: tuple[str, ...]  # globs

    def __str__(self) -> str:
        return f"Go module {self.path}@{self.version}"

    def fetch(self, directory: Path) -> Documents:
        """The documents in its files."""
        source = download(self.path, self.version)
        return read(file for glob in self.files for file in sorted(source.glob(glob)))


class Types(NamedTuple):
    """A Go module whose CRDs its own build generates from Go types."""

    path: str
    version: str
    package: str
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"Go types of {self.path}@{self.version}"

    def fetch(self, directory: Path) -> Documents:
        """The CRDs that controller-gen generates. Building controller-gen takes half a minute."""
        source, crds = directory / "source", directory / "crds"
        copy_sources(download(self.path, self.version), source)
        paths, output = f"paths=./{self.package}", f"output:crd:dir={crds}"
        run_in(source, "go", "run", CONTROLLER_GEN, "crd:allowDangerousTypes=true", paths, output)
        return [each for each in read(crds.glob("*.yaml")) if kind(each) in self.kinds]


class Strimzi(NamedTuple):
    """Strimzi's kinds, which its own generator derives from Java classes."""

    version: str
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"Java classes of Strimzi {self.version}"

    def fetch(self, directory: Path) -> Documents:
        """The CRDs that the generator writes. Maven downloads 31 MB."""
        project = directory / "pom.xml"
        project.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>stampede</groupId>"
            "<artifactId>schemas</artifactId><version>1</version><dependencies>"
            f"{dependency('api', self.version)}{dependency('crd-generator', self.version)}"
            "</dependencies></project>"
        )
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={directory}/jars")
        run_in(directory, "mvn", "--quiet", "--batch-mode", f"--file={project}", *copy)
        classes = [
            f"io.strimzi.api.kafka.model.{name}={directory}/{name}.yaml" for name in self.kinds
        ]
        generator = "io.strimzi.crdgenerator.CrdGenerator"
        run_in(directory, "java", "-cp", f"{directory}/jars/*", generator, "--yaml", *classes)
        return read(directory.glob("*.yaml"))


KUBERNETES = Module("k8s.io/kubernetes", "v1.34.4", ("api/openapi-spec/swagger.json",))
# The modules of Knative 1.20 have the version 0.47.
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
    Module(  # the version in the go.mod of serving
        "knative.dev/networking",
        "v0.0.0-20251021092443-0bde19154dce",
        ("config/domain-claim.yaml",),
    ),
    Module(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        tuple(
            f"example/prometheus-operator-crd/monitoring.coreos.com_{kinds}.yaml"
            for kinds in ("servicemonitors", "podmonitors", "prometheusrules")
        ),
    ),
    Module(
        "github.com/kedacore/keda/v2",
        "v2.21.0",
        (
            "config/crd/bases/keda.sh_scaledobjects.yaml",
            "config/crd/bases/keda.sh_triggerauthentications.yaml",
            "pkg/scalers/kafka_scaler.go",
        ),
    ),
    # These two have the versions that Knative and Traefik use in the end-to-end tests.
    Module(
        "github.com/cert-manager/cert-manager",
        "v1.16.3",
        ("deploy/crds/crd-certificates.yaml", "deploy/crds/crd-clusterissuers.yaml"),
    ),
    Module(
        "sigs.k8s.io/gateway-api",
        "v1.4.0",
        tuple(
            f"config/crd/standard/gateway.networking.k8s.io_{kinds}.yaml"
            for kinds in ("gateways", "httproutes")
        ),
    ),
    # The only module of Rook that Go can fetch has its types; these fields have not changed since.
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
    # The last release that publishes its generator as a package.
    Strimzi("0.45.0", ("topic.KafkaTopic", "user.KafkaUser")),
)


def definitions(progress: Progress = print) -> tuple[dict[str, Any], Documents]:
    """Kubernetes' own OpenAPI definitions, and the objects of the other packages."""
    ((built_in,), *others) = (cached(origin, progress) for origin in (KUBERNETES, *CUSTOM))
    return built_in["definitions"], [each for documents in others for each in documents]


def cached(origin: Origin, progress: Progress) -> Documents:
    """The definitions of an origin, fetched only if the user's cache lacks them."""
    name = blake2b(repr((CONTROLLER_GEN, origin)).encode(), digest_size=8).hexdigest()
    file = CACHE / "schemas" / f"{name}.json"
    if not file.exists():
        progress(f"schemas from {origin}")
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as directory:
            complete = Path(directory) / "complete.json"
            complete.write_text(json.dumps(origin.fetch(Path(directory))))
            complete.rename(file)
    return json.loads(file.read_text())


def run_in(directory: Path, *command: str) -> None:
    """Run a program that writes into a directory. Raises `Failed`."""
    # The user's Go workspace and flags must not apply here.
    env = {"GOWORK": "off", "GOFLAGS": "-mod=mod"}
    run(*command, log=LOGS / f"schemas-{command[0]}.log", cwd=directory, env=env)


def dependency(artifact: str, version: str) -> str:
    """A package of Strimzi, as an element of a Maven project."""
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
    except Failed as error:
        sys.exit(f"schemas: {error}")
