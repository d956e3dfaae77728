"""Filling a registry with a release: image, chart, signatures. A version is pushed once."""

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from releases import provenance, signing
from releases.layout import Blob, Layout, configuration
from releases.registry import RegistryError, Repository


class Release(NamedTuple):
    """The files of a release that go to a registry."""

    images: Mapping[str, Path]  # by architecture
    chart: Path
    about: Mapping[str, Any]  # the chart's Chart.yaml
    home: str  # the name of the image that the chart takes by default
    predicate: Mapping[str, Any]

    @property
    def version(self) -> str:
        """The version of image and chart."""
        return str(self.about["version"])

    @classmethod
    def read(cls, directory: Path) -> "Release":
        """The release in a directory that tools/release wrote.

        Raises `ValueError` if a file is missing or is not as SHA256SUMS says.
        """
        check_sums(directory)
        (chart,) = directory.glob("stampede-*.tgz")
        with tarfile.open(chart) as tar:
            about, values = (
                yaml.safe_load(tar.extractfile(f"stampede/{name}.yaml"))  # type: ignore[arg-type]
                for name in ("Chart", "values")
            )
        (predicate,) = directory.glob("stampede-*.provenance.json")
        found = json.loads(predicate.read_text())
        commit, changed = provenance.made_of(found)
        if changed:
            raise ValueError(
                f"{directory} was made of files that are not those of commit {commit}: "
                "commit them, and make the release again"
            )
        images = by_architecture(directory.glob("stampede-*.image.tar"))
        return cls(images, chart, about, values["image"]["repository"], found)


def check_sums(directory: Path) -> None:
    """Compare files with SHA256SUMS. Raises `ValueError` if one differs or is not named there."""
    file = directory / "SHA256SUMS"
    if not file.exists():
        raise ValueError(f"{directory} has no SHA256SUMS: `make release` writes it")
    lines = (line.partition("  ") for line in file.read_text().splitlines())
    sums = {name: digest for digest, _, name in lines}
    for path in directory.iterdir():
        if path != file:
            with path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            if sums.pop(path.name, "") != digest:
                raise ValueError(f"{path} is not the file that SHA256SUMS names")
    if sums:
        raise ValueError(f"{directory} lacks {', '.join(sums)}")


def by_architecture(archives: Iterable[Path]) -> dict[str, Path]:
    """Archives of an image by architecture. Raises `ValueError` if two share one, or for none."""
    found: dict[str, Path] = {}
    for archive in sorted(archives):
        architecture, _ = configuration(archive)
        if architecture in found:
            raise ValueError(f"{found[architecture]} and {archive} are both of {architecture}")
        found[architecture] = archive
    if not found:
        raise ValueError("there is no archive of the image")
    return found


class Publisher:
    """Pushes a release to a registry, ``HOST/PATH``.

    Parameters
    ----------
    signer
        Signs what was pushed, if there is one.
    progress
        Called with a line for each thing that is pushed, or is there already.
    """

    def __init__(
        self, registry: str, signer: signing.Signer | None, progress: Callable[[str], None]
    ) -> None:
        self._registry, self._signer, self._progress = registry, signer, progress

    def publish(self, release: Release) -> dict[str, str]:
        """Push image, chart and signatures; the digests of image and chart by full name.

        Raises
        ------
        RegistryError
            The chart takes another image by default, or the registry has something else under
            this version, or does not work.
        """
        image = Repository(f"{self._registry}/stampede")
        if release.home != image.name:
            made_for = f"the image {release.home}" if release.home else "no registry"
            advice = f"tools/release --registry {self._registry}"
            raise RegistryError(f"the chart was made for {made_for}: make it with {advice}")
        chart = Repository(f"{self._registry}/charts/stampede")
        # Look at both before one is pushed: a version is not to be half another's.
        there = {
            image.name: self._image_there(image, release),
            chart.name: self._chart_there(chart, release),
        }
        digests = {}
        for repository, add in ((image, _add_image), (chart, _add_chart)):
            name = f"{repository.name}:{release.version}"
            with tempfile.TemporaryDirectory() as directory:
                layout = Layout(Path(directory) / "layout")
                digest = there[repository.name]
                if digest is None:
                    self._progress(f"push {name}")
                    digest = _push(layout, repository, add(layout, release), release.version)
                else:
                    self._progress(f"unchanged {name}")
                if self._signer:
                    self._sign(layout, repository, digest, release)
            digests[name] = digest
        return digests

    def _image_there(self, repository: Repository, release: Release) -> str | None:
        """The digest that the version has, if it has this image. Raises `RegistryError`."""
        found = repository.manifest(release.version)
        if found is None:
            return None
        digest, index = found
        mine = dict(configuration(archive) for archive in release.images.values())
        parts = {
            each["platform"]["architecture"]: repository.manifest(each["digest"])
            for each in index.get("manifests", ())
        }
        theirs = {name: part[1]["config"]["digest"] for name, part in parts.items() if part}
        return self._same(f"{repository.name}:{release.version}", digest, mine, theirs)

    def _chart_there(self, repository: Repository, release: Release) -> str | None:
        """The digest that the version has, if it has this chart. Raises `RegistryError`."""
        found = repository.manifest(release.version)
        if found is None:
            return None
        digest, manifest = found
        mine = f"sha256:{hashlib.sha256(release.chart.read_bytes()).hexdigest()}"
        theirs = [layer["digest"] for layer in manifest.get("layers", ())]
        name = f"{repository.name}:{release.version}"
        return self._same(name, digest, {"chart": mine}, dict.fromkeys(["chart"], *theirs))

    @staticmethod
    def _same(name: str, digest: str, mine: dict[str, str], theirs: dict[str, str]) -> str:
        if mine != theirs:
            raise RegistryError(
                f"{name} is there with another content and was not changed: a version is pushed "
                f"once. There: {_list(theirs)}. Here: {_list(mine)}. Release this as a new version"
            )
        return digest

    def _sign(self, layout: Layout, repository: Repository, digest: str, release: Release) -> None:
        """Push signature and provenance of what has this digest, unless they are there."""
        assert self._signer is not None
        made = {
            "sig": self._signer.signature(layout, repository.name, digest),
            "att": self._signer.attestation(layout, repository.name, digest, release.predicate),
        }
        for kind, blob in made.items():
            tag = signing.tag(digest, kind)
            found = repository.manifest(tag)
            if found is None:
                self._progress(f"push {repository.name}:{tag}")
                _push(layout, repository, blob, tag)
            elif found[0] != blob.digest:
                raise RegistryError(
                    f"{repository.name}:{tag} is another signature, perhaps of another key, and "
                    "was not changed. If yours is to replace it, delete it in the registry first"
                )


def _add_image(layout: Layout, release: Release) -> Blob:
    images = {name: layout.add_image(archive) for name, archive in release.images.items()}
    return layout.add_index(images)


def _add_chart(layout: Layout, release: Release) -> Blob:
    return layout.add_chart(release.chart, dict(release.about))


def _push(layout: Layout, repository: Repository, blob: Blob, tag: str) -> str:
    """Push a manifest; its digest, as the registry has it. Raises `RegistryError`."""
    layout.name(blob, tag)
    repository.push(layout, tag, tag)
    found = repository.manifest(tag)
    if found is None or found[0] != blob.digest:
        raise RegistryError(f"{repository.name}:{tag} is not {blob.digest} after it was pushed")
    return blob.digest


def _list(parts: dict[str, str]) -> str:
    return ", ".join(f"{name} {digest}" for name, digest in sorted(parts.items())) or "nothing"
