"""The chart as an archive, and the digests of a release."""

import gzip
import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path


def pack_chart(chart: Path, helm: str, out: Path, epoch: int) -> None:
    """Package a chart as Helm does, but with `epoch` as the date of every file, sorted by name."""
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
        with (out / packed.name).open("wb") as target:
            target.write(_compressed(files, epoch))


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
