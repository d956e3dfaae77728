"""The chart as an archive, and the digests of a release."""

import gzip
import hashlib
import io
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

# Where the chart names the image: in values.yaml, and among Chart.yaml's annotations.
_HOME = re.compile(r"^(image:\n(?:  .*\n)*?  repository: |      image: )[^\s:]+", re.MULTILINE)


def pack_chart(chart: Path, helm: str, out: Path, epoch: int, registry: str = "") -> None:
    """Package a chart as Helm does, but with `epoch` as the date of every file, sorted by name.

    Its image is by default the one in `registry`, ``HOST/PATH``.
    """
    with tempfile.TemporaryDirectory() as temporary:
        subprocess.run(
            [helm, "package", chart, "--destination", temporary],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (packed,) = Path(temporary).iterdir()
        with tarfile.open(packed) as tar:
            files = {
                member.name: tar.extractfile(member).read()  # type: ignore[union-attr]
                for member in tar
                if member.isfile()
            }
        if registry:
            _set_home(files, registry)
        with (out / packed.name).open("wb") as target:
            target.write(_compressed(files, epoch))


def _set_home(files: dict[str, bytes], registry: str) -> None:
    """Put the image's address into the files of a chart where they name it."""
    for name in ("stampede/values.yaml", "stampede/Chart.yaml"):
        text = files[name].decode()
        text, changes = _HOME.subn(rf"\g<1>{registry}/stampede", text)
        if changes != 1:
            raise ValueError(f"{name} names the image {changes} times, not once")
        files[name] = text.encode()


def digests(directory: Path) -> str:
    """The SHA-256 of each file, in the format of ``sha256sum --check``."""
    lines = []
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def _compressed(files: dict[str, bytes], epoch: int) -> bytes:
    """A gzipped tar file of `files`."""
    data = io.BytesIO()
    # Helm wants Chart.yaml first.
    names = sorted(files, key=lambda name: (not name.endswith("/Chart.yaml"), name))
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(files[name]), epoch, 0o644
            tar.addfile(info, io.BytesIO(files[name]))
    return gzip.compress(data.getvalue(), mtime=epoch)
