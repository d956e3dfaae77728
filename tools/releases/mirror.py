"""Copies of images in a directory, which carries them from one registry to another."""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from releases.manifests import texts_in
from releases.registry import RegistryError, Repository
from releases.signing import tag as signed_tag

_NAME = re.compile(
    r"(?P<host>[a-z0-9.-]+\.[a-z0-9.-]+(?::\d+)?|localhost(?::\d+)?|\[[0-9a-f:]+\]:\d+)"
    r"/(?P<path>[a-z0-9._/-]+)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_LINE = re.compile(rf"\s*({_NAME.pattern})\s*")

_HEAD = """\
# All images of an installation. `tools/mirror save` copies them into a directory, and from there
# `tools/mirror load` into your registry. Leave out what you do not need.
"""
_OWN = """\
# Stampede {0}: its image and its chart
{1}/stampede:{0}
{1}/charts/stampede:{0}
"""
_UNPUBLISHED = "# Stampede {0} was made for no registry: load its image.tar files into the nodes\n"


class Reference(NamedTuple):
    """The name of an image: ``HOST/PATH``, and its tag, its digest or both."""

    host: str
    path: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """The reference in a text. Raises `ValueError` if it is none, or has no tag and digest."""
        found = _NAME.fullmatch(text)
        if not found or not (found["tag"] or found["digest"]):
            raise ValueError(
                f"{text} is not the name of an image: HOST/PATH:TAG or HOST/PATH@DIGEST"
            )
        return cls(found["host"], found["path"], found["tag"] or "", found["digest"] or "")

    @property
    def version(self) -> str:
        """By what the image is asked for: its digest, or else its tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.host}/{self.path}{tag}" + (f"@{self.digest}" if self.digest else "")


def image_list(version: str, registry: str, needed: str) -> str:
    """The lines of images.txt: Stampede's own images in a registry, and those that it needs."""
    return _HEAD + (_OWN if registry else _UNPUBLISHED).format(version, registry) + needed


def listed(text: str) -> list[Reference]:
    """The images of an images.txt. Raises `ValueError` with the line that is none."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if name := line.partition("#")[0].strip():
            try:
                found.append(Reference.parse(name))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return found


def named_in(manifest: str) -> list[Reference]:
    """The images that Kubernetes' objects in a YAML file name, anywhere, in the file's order.

    Knative's controller gets some as environment variables or from ConfigMaps.
    """
    names: dict[Reference, None] = {}
    for text in texts_in(manifest):
        found = _LINE.fullmatch(text)
        if found and (found["digest"] or found["tag"]):
            names[Reference.parse(found[1])] = None
    return [*names]


class Mirror:
    """Copies in a directory, one folder for each image.

    Parameters
    ----------
    progress
        Called with a line for each image.
    """

    def __init__(self, directory: Path, progress: Callable[[str], None]) -> None:
        self._directory, self._progress = directory, progress

    def save(self, images: Iterable[Reference]) -> list[str]:
        """Copy images, with all architectures and signatures, into the directory.

        What is there and unchanged is not copied again. Returns what failed; the others are copied.
        """
        wanted = [*dict.fromkeys(images)]
        failed = []
        for number, image in enumerate(wanted, 1):
            self._progress(f"{number}/{len(wanted)} {image}")
            try:
                self._save(image)
            except RegistryError as error:
                failed.append(str(error))
        return failed

    def load(self, registry: str) -> list[str]:
        """Copy all images from the directory into a registry, ``HOST`` or ``HOST/PATH``.

        What the registry has is not copied again. A name keeps its path, as with the chart's
        ``global.imageRegistry``. Returns what failed; the others are copied.
        """
        wanted = sorted(self._kept())
        failed = (
            [] if wanted else [f"{self._directory} has no images: run `tools/mirror save` first"]
        )
        for number, (image, folder) in enumerate(wanted, 1):
            target = Repository(f"{registry}/{image.path}")
            self._progress(f"{number}/{len(wanted)} {target.name}:{image.tag or image.digest}")
            try:
                found = target.manifest(image.tag or image.digest)
                if found is None or found[0] != _digest(folder):
                    target.push_folder(folder, image.tag or image.digest)
            except RegistryError as error:
                failed.append(str(error))
        return failed

    def _save(self, image: Reference) -> None:
        source = Repository(f"{image.host}/{image.path}")
        digest = self._save_one(source, image)
        if digest is None:
            raise RegistryError(f"{image} is not there")
        for kind in ("sig", "att"):
            self._save_one(source, Reference(image.host, image.path, signed_tag(digest, kind), ""))

    def _save_one(self, source: Repository, image: Reference) -> str | None:
        """Copy what has a name, unless it is there; its digest, or None if nothing has the name."""
        found = source.manifest(image.version)
        if found is None:
            return None
        folder = self._folder(image)
        if not folder.exists() or _digest(folder) != found[0]:
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.parent.mkdir(parents=True, exist_ok=True)
            source.save_folder(image.version, partial)
            (partial / "reference.json").write_text(json.dumps(image._asdict()))
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        return found[0]

    def _folder(self, image: Reference) -> Path:
        return self._directory / str(image).replace("/", "+").replace(":", "=")

    def _kept(self) -> Iterator[tuple[Reference, Path]]:
        for file in self._directory.glob("*/reference.json"):
            if file.parent.suffix != ".partial":
                yield Reference(**json.loads(file.read_text())), file.parent


def _digest(folder: Path) -> str:
    return f"sha256:{sha256((folder / 'manifest.json').read_bytes()).hexdigest()}"
