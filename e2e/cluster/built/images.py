"""Images of the programs that run in pods, built from pinned Go modules: nothing is pulled.

Each image has its version in its tag. An image that exists is not built again.
"""

import json
import re
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.images.archive import write_program

from e2e.cluster import traefik
from e2e.cluster.built import go_modules
from e2e.cluster.places import CLUSTER, IMAGES, REGISTRY
from e2e.cluster.steps import step
from stampede.runtime.bounded_pool import run_all

AT_ONCE = 2  # images that are loaded: one is unpacked while another is read
_SCRATCH_PREFIX = ".making-"


class ModuleImages(NamedTuple):
    """A Go module, and its programs that run in pods, each in an image of its own."""

    module: str
    prefix: str  # of the images' names
    programs: tuple[str, ...]

    @property
    def version(self) -> str:
        """The pinned version of the module."""
        return go_modules.pinned_version(self.module)

    def image(self, program: str) -> str:
        """Name and tag of a program's image."""
        return f"{REGISTRY}/{self.prefix}{re.sub('[/_]', '-', program)}:{self.version}"

    @property
    def images(self) -> list[str]:
        """Names and tags of all images."""
        return [self.image(program) for program in self.programs]


SERVING = ModuleImages(
    "knative.dev/serving",
    "knative-serving-",
    ("queue", "activator", "autoscaler", "controller", "webhook"),
)
EVENTING = ModuleImages(
    "knative.dev/eventing",
    "knative-eventing-",
    (
        *("controller", "webhook", "mtping", "mtchannel_broker", "broker/ingress", "broker/filter"),
        *("in_memory/channel_controller", "in_memory/channel_dispatcher"),
    ),
)
TRAEFIK = ModuleImages("github.com/traefik/traefik/v3", "", ("traefik",))
PAUSE_IMAGE = f"{REGISTRY}/pause:1"
REGISTRY_IMAGE = f"{REGISTRY}/registry:1"
_OUR_PROGRAMS = {PAUSE_IMAGE: "pause", REGISTRY_IMAGE: "registry"}  # images, by directory


def image_names() -> list[str]:
    """Names and tags of all images that run in pods."""
    return [*_OUR_PROGRAMS, *SERVING.images, *EVENTING.images, *TRAEFIK.images]


def archive_path(image: str) -> Path:
    """The archive file of an image."""
    return IMAGES / (image.removeprefix(f"{REGISTRY}/").replace(":", "-") + ".tar")


def runs_on_workers(archive: Path) -> bool:
    """Whether pods of an image can run on a worker; the others are pinned to the control plane."""
    pinned = {*SERVING.images, *EVENTING.images, *TRAEFIK.images} - {SERVING.image("queue")}
    site = ("stampede-ceph.tar", "stampede-kafka.tar")
    return archive.name not in site and archive not in map(archive_path, pinned)


def build_all() -> list[Path]:
    """Build all images that are missing; the archives of all."""
    for image, program in _OUR_PROGRAMS.items():
        if not archive_path(image).exists():
            with step(f"the image of {program}"), scratch_directory() as scratch:
                go_modules.build([f"./{program}"], scratch / program)
                write_program_image(scratch / program, image)
    for module in (SERVING, EVENTING, TRAEFIK):
        _build_module(module)
    return [archive_path(name) for name in image_names()]


def load_missing(
    archives: Iterable[Path], loaded_file: Path, load_one: Callable[[Path], object]
) -> None:
    """Load images into a cluster, except those it already has.

    Parameters
    ----------
    archives
        As ``docker save`` writes them.
    loaded_file
        Lists the images that the cluster has. Delete it together with the cluster.
    load_one
        Loads one archive.
    """
    loaded = json.loads(loaded_file.read_text()) if loaded_file.exists() else {}
    writing = threading.Lock()

    def load(archive: Path) -> None:
        name, digest = name_and_digest(archive)
        if loaded.get(name) == digest:
            return
        with step(f"image {name}"):
            load_one(archive)
        with writing:
            loaded[name] = digest
            loaded_file.write_text(json.dumps(loaded))

    run_all(load, archives, AT_ONCE, "images")


def name_and_digest(archive: Path) -> tuple[str, str]:
    """Name of the image in an archive, and the name of its configuration, which is its digest."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        (image,) = json.load(manifest)
    return image["RepoTags"][0], image["Config"]


def remove_unfinished() -> None:
    """Remove the files of builds that were killed."""
    for each in CLUSTER.glob(f"{_SCRATCH_PREFIX}*"):
        shutil.rmtree(each)


def _build_module(module: ModuleImages) -> None:
    """Build all programs of a module in one command: they share most of their packages."""
    if all(archive_path(name).exists() for name in module.images):
        return
    with step(f"{module.module} {module.version}"), scratch_directory() as scratch:
        packages = [f"{module.module}/cmd/{program}" for program in module.programs]
        if module is TRAEFIK:
            go_mod = traefik.write_go_mod(scratch)
            version = {f"{module.module}/pkg/version.Version": module.version}
            go_modules.build(packages, scratch / "traefik", version, go_mod)
        else:
            go_modules.build(packages, scratch)
        for program in module.programs:
            write_program_image(scratch / Path(program).name, module.image(program))


def build_own_module(
    module: str,
    version: str,
    images: Mapping[str, str],
    change: Callable[[Path], object] = lambda _: None,
) -> list[Path]:
    """Build programs of a module with its own go.mod and go.sum, unless their images exist.

    Parameters
    ----------
    images
        The image of each program, by the program's path below the module.
    change
        Changes the sources, in a directory of their own, before they are compiled.

    Returns
    -------
    The archives of all images.
    """
    archives = [archive_path(image) for image in images.values()]
    if not all(archive.exists() for archive in archives):
        with step(f"{module} {version}"), scratch_directory() as scratch:
            sources = scratch / "sources"
            go_modules.copy_sources(go_modules.download(module, version), sources)
            change(sources)
            go_modules.build([f"./{path}" for path in images], scratch, module=sources)
            for path, image in images.items():
                write_program_image(scratch / Path(path).name, image)
    return archives


def write_program_image(program: Path, name: str, user: str = "65532:65532") -> None:
    """Write an image that holds one program and nothing else."""
    with scratch_directory() as scratch:
        (scratch / "files").mkdir()
        program.rename(app := scratch / "files" / "app")
        app.chmod(0o755)
        IMAGES.mkdir(parents=True, exist_ok=True)
        write_program(scratch / "files", name, archive_path(name), user)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory next to the programs and images, so that files can be moved and linked."""
    CLUSTER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLUSTER, prefix=_SCRATCH_PREFIX) as name:
        yield Path(name)
