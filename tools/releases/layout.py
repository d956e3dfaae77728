"""Images and charts as an OCI image layout: a directory of blobs, which registries are filled from.

The formats are those of OCI's image specification 1.1 and of Helm's charts in registries. The same
input gives the same bytes, as long as zlib compresses in the same way.
"""

import gzip
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
Document = dict[str, Any]


class Blob(NamedTuple):
    """A blob: its media type, its digest, ``sha256:…``, and its size in bytes."""

    media_type: str
    digest: str
    size: int

    def descriptor(self, **more: object) -> Document:
        """Its descriptor, as documents of OCI have it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size, **more}


class Layout:
    """An OCI image layout in an empty directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._named: list[Document] = []
        (directory / "blobs" / "sha256").mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def add(self, content: bytes, media_type: str) -> Blob:
        """Add bytes."""
        digest = hashlib.sha256(content).hexdigest()
        (self.directory / "blobs" / "sha256" / digest).write_bytes(content)
        return Blob(media_type, f"sha256:{digest}", len(content))

    def add_document(self, document: Document, media_type: str) -> Blob:
        """Add a document as JSON."""
        return self.add(json.dumps(document, separators=(",", ":")).encode(), media_type)

    def add_manifest(
        self,
        config: Blob,
        layers: Sequence[Document],
        annotations: Mapping[str, str] | None = None,
    ) -> Blob:
        """Add the manifest of a configuration and descriptors of layers."""
        document: Document = {
            **{"schemaVersion": 2, "mediaType": MANIFEST},
            **{"config": config.descriptor(), "layers": [*layers]},
        }
        if annotations:
            document["annotations"] = dict(annotations)
        return self.add_document(document, MANIFEST)

    def add_image(self, archive: Path) -> Blob:
        """Add the manifest of an image from a ``docker save`` archive, and its layers, compressed.

        Raises `ValueError` if the archive holds no image, or several.
        """
        with tarfile.open(archive) as tar:
            entry = manifest_of(tar, archive)
            config = self.add(_file(tar, entry["Config"]).read(), CONFIG)
            layers = [self._add_layer(_file(tar, name)) for name in entry["Layers"]]
        return self.add_manifest(config, [layer.descriptor() for layer in layers])

    def add_index(self, images: Mapping[str, Blob]) -> Blob:
        """Add the index of images by architecture."""
        manifests = [
            image.descriptor(platform={"architecture": architecture, "os": "linux"})
            for architecture, image in sorted(images.items())
        ]
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        return self.add_document(document, INDEX)

    def add_chart(self, package: Path, about: Document) -> Blob:
        """Add the manifest of a chart that `helm package` made; `about` is its Chart.yaml."""
        layer = self.add(package.read_bytes(), CHART)
        titles = {
            "org.opencontainers.image.title": about["name"],
            "org.opencontainers.image.version": about["version"],
            "org.opencontainers.image.description": about["description"],
        }
        return self.add_manifest(
            self.add_document(about, CHART_CONFIG), [layer.descriptor()], titles
        )

    def name(self, blob: Blob, name: str) -> None:
        """Give a manifest or an index a name within the layout."""
        names = {"org.opencontainers.image.ref.name": name}
        self._named.append(blob.descriptor(annotations=names))
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self._named}
        (self.directory / "index.json").write_text(json.dumps(document))

    def _add_layer(self, tar: IO[bytes]) -> Blob:
        blobs = self.directory / "blobs" / "sha256"
        with (
            tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as file,
            gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,  # its header has no name
        ):
            shutil.copyfileobj(tar, compressed, 1 << 20)
        path = Path(file.name)
        with path.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        path.chmod(0o644)
        path.rename(blobs / digest)
        return Blob(LAYER, f"sha256:{digest}", (blobs / digest).stat().st_size)


def configuration(archive: Path) -> tuple[str, str]:
    """Architecture of the image in an archive, and the digest of its configuration.

    The configuration names the digest of each layer before compression: it is the image's content.
    Raises `ValueError` if the archive holds no image, or several.
    """
    with tarfile.open(archive) as tar:
        content = _file(tar, manifest_of(tar, archive)["Config"]).read()
    return (
        json.loads(content)["architecture"],
        f"sha256:{hashlib.sha256(content).hexdigest()}",
    )


def manifest_of(tar: tarfile.TarFile, archive: Path) -> Document:
    """The one entry of an archive's manifest.json. Raises `ValueError` if there is not one."""
    try:
        entries = json.load(_file(tar, "manifest.json"))
    except KeyError:
        raise ValueError(f"{archive} is no archive of `docker save`") from None
    if len(entries) != 1:
        raise ValueError(f"{archive} holds {len(entries)} images, not one")
    return entries[0]


def _file(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file
