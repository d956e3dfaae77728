"""What the cluster is made of: programs and images out of pinned Go modules, nothing pulled.

All are built as one module, `programs`: what Kubernetes, Knative, Traefik, CoreDNS and helm have in
common is compiled once. Each result has its version in its name; what is there is not made again.
"""

import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tools.images.archive import write_image, write_layer

from e2e.cluster.places import CLUSTER, HERE, IMAGES, LOGS, PROGRAMS, REGISTRY
from e2e.cluster.steps import Failed, run, step

# Debian's part: a program or file that tells that a package is here.
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "nft": "nftables",
    "ip": "iproute2",
    "openssl": "openssl",
}
KUBE_NAMES = (
    *("etcd", "kubectl", "kubelet", "kube-apiserver", "kube-controller-manager"),
    *("kube-proxy", "kube-scheduler"),
)
COREDNS = "github.com/coredns/coredns"
KUBERNETES = "k8s.io/kubernetes"
# Programs that people run: the package of each.
TOOLS = {"helm": "helm.sh/helm/v3/cmd/helm", "kind": "sigs.k8s.io/kind"}
_MAKING = ".making-"
_ADVICE = "Go 1.25 or later has to be here, and be able to fetch modules (`go env GOPROXY`)."


class Source(NamedTuple):
    """A Go module, and those of its programs that run in pods, each an image of its own."""

    module: str
    prefix: str  # of the images' names
    programs: tuple[str, ...]

    @property
    def version(self) -> str:
        """At which the module is pinned."""
        return pinned(self.module)

    def image(self, program: str) -> str:
        """What the image of a program is called."""
        return f"{REGISTRY}/{self.prefix}{re.sub('[/_]', '-', program)}:{self.version}"

    @property
    def images(self) -> list[str]:
        """What they are all called."""
        return [self.image(program) for program in self.programs]


SERVING = Source(
    "knative.dev/serving",
    "knative-serving-",
    ("queue", "activator", "autoscaler", "controller", "webhook"),
)
EVENTING = Source(
    "knative.dev/eventing",
    "knative-eventing-",
    (
        *("controller", "webhook", "mtping", "mtchannel_broker", "broker/ingress", "broker/filter"),
        *("in_memory/channel_controller", "in_memory/channel_dispatcher"),
    ),
)
TRAEFIK = Source("github.com/traefik/traefik/v3", "", ("traefik",))
PAUSE_IMAGE = f"{REGISTRY}/pause:1"


def archive(image: str) -> Path:
    """The file that an image is in."""
    return IMAGES / (image.removeprefix(f"{REGISTRY}/").replace(":", "-") + ".tar")


def identity(archive: Path) -> tuple[str, str]:
    """What the image in an archive is called, and the name of its configuration: its digest."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        (image,) = json.load(manifest)
    return image["RepoTags"][0], image["Config"]


def load(archives: Iterable[Path], known: Path, give: Callable[[Path], object]) -> None:
    """Give a cluster those images that it has not got.

    Parameters
    ----------
    archives
        As `docker save` writes them.
    known
        File of what it has got, which is to go when the cluster does.
    give
        Gives it one.
    """
    got = json.loads(known.read_text()) if known.exists() else {}
    for each in archives:
        name, digest = identity(each)
        if got.get(name) != digest:
            with step(f"image {name}"):
                give(each)
            got[name] = digest
            known.write_text(json.dumps(got))


def images() -> list[Path]:
    """The archives of all images that run in pods, built if need be."""
    if not archive(PAUSE_IMAGE).exists():
        with step("the pause image"), _scratch() as scratch:
            _go(["./pause"], scratch / "pause")
            _image(scratch / "pause", PAUSE_IMAGE)
    for source in (SERVING, EVENTING, TRAEFIK):
        _images_of(source)
    return [archive(name) for name in image_names()]


def image_names() -> list[str]:
    """What the images are called that run in pods."""
    return [PAUSE_IMAGE, *SERVING.images, *EVENTING.images, *TRAEFIK.images]


def clean() -> None:
    """Remove what builds left that were killed."""
    for each in CLUSTER.glob(f"{_MAKING}*"):
        shutil.rmtree(each)


def kube(name: str) -> Path:
    """One of Kubernetes' programs, or etcd: all are one binary, which goes by its name."""
    version = pinned(KUBERNETES)
    directory = PROGRAMS / f"kube-{version}"
    if not (directory / "kube").exists():
        parts = {"gitVersion": version, "gitMajor": "1", "gitMinor": version.split(".")[1]}
        stamps = {
            f"{package}.{key}": value
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
            for key, value in parts.items()
        }
        with step(f"Kubernetes {version} with etcd, as one program"):
            _go(["./kube"], directory / "kube", stamps)
    for each in KUBE_NAMES:
        if not (directory / each).is_symlink():
            (directory / each).symlink_to("kube")
    return directory / name


def coredns() -> Path:
    """The program CoreDNS."""
    version = pinned(COREDNS)
    program = PROGRAMS / f"coredns-{version}"
    if not program.exists():
        with step(f"CoreDNS {version}"):
            _go(["./coredns"], program)
    return program


def tool(name: str) -> Path:
    """The program helm, kind or kubectl."""
    if name in KUBE_NAMES:
        return kube(name)
    package = TOOLS[name]
    version = pinned(package.partition("/cmd/")[0])
    program = PROGRAMS / f"{name}-{version}"
    if not program.exists():
        stamps = {"helm.sh/helm/v3/internal/version.version": version} if name == "helm" else {}
        with step(f"{name} {version}"):
            _go([package], program, stamps)
    return program


def packages() -> None:
    """Install the Debian packages that a node needs, as root.

    Raises
    ------
    Failed
        We are not root, or they cannot be had.
    """
    missing = [package for sign, package in PACKAGES.items() if shutil.which(sign) is None]
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failed(f"this machine lacks {', '.join(missing)}: sudo {' '.join(command)}")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"Debian packages: {', '.join(missing)}"):
        run("apt-get", "update", log=LOGS / "apt-update.log", env=env)
        run(*command, log=LOGS / "apt-install.log", env=env)


@cache
def pinned(module: str) -> str:
    """The version at which `programs` pins a module."""
    text = (HERE / "programs" / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    assert found is not None, f"programs/go.mod does not pin {module}"
    return found[1]


@cache
def module(path: str) -> Path:
    """Directory of the files of a pinned module, fetched if need be and checked by Go."""
    said = run(
        *("go", "mod", "download", "-json", f"{path}@{pinned(path)}"),
        log=LOGS / f"go-download-{path.replace('/', '-')}.log",
        cwd=Path(tempfile.gettempdir()),
        advice=_ADVICE,
    )
    return Path(json.loads(said)["Dir"])


def _images_of(source: Source) -> None:
    """All of a module's programs at once: most of each is common to all."""
    if all(archive(name).exists() for name in source.images):
        return
    with step(f"{source.module} {source.version}"), _scratch() as scratch:
        wanted = [f"{source.module}/cmd/{program}" for program in source.programs]
        if source is TRAEFIK:
            pins = _without_dns_providers(scratch / "lego")
            stamps = {f"{source.module}/pkg/version.Version": source.version}
            _go(wanted, scratch / "traefik", stamps, pins)
        else:
            _go(wanted, scratch)
        for program in source.programs:
            _image(scratch / Path(program).name, source.image(program))


def _without_dns_providers(lego: Path) -> Path:
    """A go.mod by which Traefik is without the 180 DNS providers that it can ask for certificates.

    They and their clouds' SDKs would be compiled for nothing.
    """
    path = "github.com/go-acme/lego/v4"
    shutil.copytree(
        module(path),
        lego,
        ignore=lambda directory, names: names if directory.endswith("providers/dns") else (),
        copy_function=shutil.copyfile,
    )
    for each in (lego, *lego.rglob("*/")):  # Go's cache is read-only
        each.chmod(0o755)
    (lego / "providers" / "dns" / "none.go").write_text(_NO_DNS_PROVIDERS)
    for each in ("go.mod", "go.sum"):
        shutil.copyfile(HERE / "programs" / each, lego.parent / each)
    pins = lego.parent / "go.mod"
    with pins.open("a") as file:
        file.write(f"\nreplace {path} => {lego}\n")
    return pins


_NO_DNS_PROVIDERS = """\
package dns

import (
	"fmt"

	"github.com/go-acme/lego/v4/challenge"
)

func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
	return nil, fmt.Errorf("built without the DNS provider %q", name)
}
"""


def _go(
    wanted: Sequence[str],
    target: Path,
    stamps: Mapping[str, str] = MappingProxyType({}),
    pins: Path = HERE / "programs" / "go.mod",
) -> None:
    """Build packages of `programs` into a file, or several into a directory.

    Parameters
    ----------
    stamps
        What the linker is to put into variables.
    pins
        The go.mod to build by.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target if target.is_dir() else target.with_name(f"{target.name}.partial")
    linker = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])
    run(
        *("nice", "go", "build", "-trimpath", "-buildvcs=false", f"-modfile={pins}"),
        # -8 % and -12 % of the CPU time; the same for all, or they would have nothing in common.
        *("-gcflags=all=-dwarf=false", "-ldflags", linker, "-o", partial, *wanted),
        log=LOGS / f"go-build-{target.name}.log",
        cwd=HERE / "programs",
        env={"CGO_ENABLED": "0", "GOGC": "400", "GOWORK": "off"},
        advice=_ADVICE,
    )
    if partial != target:
        partial.rename(target)


class _Layer(NamedTuple):
    tar: Path
    digest: str


class _Image(NamedTuple):
    layers: tuple[_Layer, ...]
    env: dict[str, str]
    user: str
    entrypoint: tuple[str, ...]


def _image(program: Path, name: str) -> None:
    """Put a program into an image in which there is nothing else."""
    with _scratch() as scratch:
        (scratch / "files").mkdir()
        program.rename(app := scratch / "files" / "app")
        app.chmod(0o755)
        tar = scratch / "layer.tar"
        layer = _Layer(tar, write_layer(scratch / "files", tar))
        IMAGES.mkdir(parents=True, exist_ok=True)
        write_image(_Image((layer,), {}, "65532:65532", ("/app",)), name, archive(name))


@contextmanager
def _scratch() -> Iterator[Path]:
    CLUSTER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLUSTER, prefix=_MAKING) as name:
        yield Path(name)
