"""The files a build may copy: those of a directory that its .dockerignore does not exclude."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path


class Context:
    """A directory without the files that its .dockerignore excludes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ignore = root / ".dockerignore"
        lines = ignore.read_text().splitlines() if ignore.exists() else []
        self._rules = [
            (not line.startswith("!"), _pattern(line.removeprefix("!").strip("/")))
            for line in map(str.strip, lines)
            if line and not line.startswith("#")
        ]

    def files(self, source: str) -> Iterator[Path]:
        """The files at `source`, relative to the root, sorted; links to files are files."""
        top = self.root / source
        if not top.exists():
            raise FileNotFoundError(f"there is no {top} to copy")
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            relative = path.relative_to(self.root)
            if (path.is_symlink() or path.is_file()) and not self._ignored(relative):
                yield relative

    def digest(self, sources: tuple[str, ...]) -> str:
        """A digest of the names and the content of all files under `sources`."""
        digest = hashlib.sha256()
        for path in (file for source in sources for file in self.files(source)):
            full = self.root / path
            content = str(full.readlink()).encode() if full.is_symlink() else full.read_bytes()
            digest.update(f"{path}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def copy(self, source: str, target: Path) -> None:
        """Copy `source` to a path, as COPY does, with the file modes of a fresh checkout."""
        top = self.root / source
        for path in self.files(source):
            to = target / (self.root / path).relative_to(top) if top.is_dir() else target
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / path, to, follow_symlinks=False)
            if not to.is_symlink():
                to.chmod(0o755 if (self.root / path).stat().st_mode & 0o100 else 0o644)

    def _ignored(self, path: Path) -> bool:
        """The last rule that matches the path, or a directory above it, decides."""
        above = [str(path), *map(str, path.parents)]
        ignored = False
        for ignore, pattern in self._rules:
            if any(pattern.fullmatch(text) for text in above):
                ignored = ignore
        return ignored


def _pattern(glob: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    return re.compile("".join(parts.get(piece, re.escape(piece)) for piece in pieces))
