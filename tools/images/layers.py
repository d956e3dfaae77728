"""Layers: what each step of a stage changes, kept in a cache by all that it depends on.

A step is done on an overlay of the layers below it, so that what it changes is a directory of its
own. Steps run in a mount and a pid namespace that end with them; nothing stays mounted.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from images.archive import write_layer
from images.context import Context
from images.dockerfile import Copy, Env, Run, Stage
from images.world import COPY, DEBIAN, PATH, RUN, files, outside


class Layer(NamedTuple):
    """One layer in the cache."""

    key: str
    directory: Path

    @property
    def files(self) -> Path:
        """What it holds, as an overlay's upper directory."""
        return self.directory / "files"

    @property
    def tar(self) -> Path:
        """The same as a tar file."""
        return self.directory / "layer.tar"

    @property
    def digest(self) -> str:
        """SHA-256 of the tar file."""
        return (self.directory / "sha256").read_text()


class Image(NamedTuple):
    """Layers, the lowest first, and what a container is given."""

    layers: tuple[Layer, ...]
    env: Mapping[str, str]
    user: str | None = None
    entrypoint: Sequence[str] | None = None


class Builder:
    """Builds images out of Dockerfiles.

    Parameters
    ----------
    context
        The files that COPY may take.
    cache
        Directory of all layers; delete it and they are made anew, with the packages of the day.
        For one builder at a time.
    say
        Called with a line at every step that has to be done.
    """

    def __init__(self, context: Context, cache: Path, say: Callable[[str], None]) -> None:
        self._context, self._cache, self._say = context, cache, say
        self._used: set[str] = set()
        (cache / "layers").mkdir(parents=True, exist_ok=True)

    def build(self, stages: Sequence[Stage], target: str, known: Mapping[str, Image]) -> Image:
        """The image of the stage `target`, the last for ``""``; only what it needs is made.

        Parameters
        ----------
        stages, target
            A Dockerfile's stages, and which is wanted.
        known
            Images that FROM may name, beside Debian's slim ones.
        """
        named = {stage.name: stage for stage in stages}
        done: dict[str, Image] = {}

        def image_of(name: str) -> Image:
            if name in named:
                if name not in done:
                    done[name] = self._stage(named[name], image_of)
                return done[name]
            return known[name] if name in known else self._debian(name)

        image = image_of(target) if target else self._stage(stages[-1], image_of)
        for layer in image.layers:
            if not layer.tar.exists():
                (layer.directory / "sha256").write_text(write_layer(layer.files, layer.tar))
        return image

    def keep(self, name: str) -> None:
        """Keep the layers of this build for the next of `name`; forget what no build needs."""
        (self._cache / f"{name}.json").write_text(json.dumps(sorted(self._used)))
        needed = {
            key for file in self._cache.glob("*.json") for key in json.loads(file.read_text())
        }
        for directory in (self._cache / "layers").iterdir():
            if directory.name not in needed:
                shutil.rmtree(directory)

    def _stage(self, stage: Stage, image_of: Callable[[str], Image]) -> Image:
        parent = image_of(stage.parent)
        env, layers = dict(parent.env), parent.layers
        for step in stage.steps:
            if isinstance(step, Env):
                env |= step.variables
            else:
                layers = (*layers, self._layer(layers, step, env, image_of))
        user = stage.user or parent.user
        return Image(layers, env, user, stage.entrypoint or parent.entrypoint)

    def _layer(
        self,
        below: tuple[Layer, ...],
        step: Copy | Run,
        env: Mapping[str, str],
        image_of: Callable[[str], Image],
    ) -> Layer:
        lower = ":".join(str(layer.files) for layer in reversed(below))
        if isinstance(step, Run):
            key = _key(below[-1].key, "RUN", step.command, json.dumps(env))
            given = {"LOWER": lower, "COMMAND": step.command, "OUTSIDE": files()}
            told = {"HOME": "/root", **outside(), **env}
            return self._make(key, f"RUN {step.command}", RUN, given, told)
        sources = " ".join(f"/{each.strip('/')}" for each in step.sources)
        doing = f"COPY {' '.join(step.sources)} {step.target}"
        given = {"LOWER": lower, "SOURCES": sources, "TARGET": step.target, "FROM": ""}
        if step.stage is not None:
            other = image_of(step.stage).layers
            given["FROM"] = ":".join(str(layer.files) for layer in reversed(other))
            return self._make(_key(below[-1].key, doing, other[-1].key), doing, COPY, given)
        key = _key(below[-1].key, doing, self._context.digest(step.sources))
        with tempfile.TemporaryDirectory(dir=self._cache) as seen:
            for source in step.sources:
                self._context.copy(source, Path(seen) / source.strip("/"))
            return self._make(key, doing, COPY, {**given, "SEEN": seen})

    def _debian(self, name: str) -> Image:
        system, _, version = name.partition(":")
        if system != "debian" or not version.endswith("-slim"):
            raise ValueError(f"FROM {name}: without a registry only debian:SUITE-slim can be made")
        suite = version.removesuffix("-slim")
        layer = self._make(
            _key(name, DEBIAN), f"FROM {name}", DEBIAN, {"SUITE": suite, **outside()}
        )
        return Image((layer,), {"PATH": PATH})

    def _make(
        self,
        key: str,
        doing: str,
        script: str,
        given: Mapping[str, str],
        told: Mapping[str, str] | None = None,
    ) -> Layer:
        """The layer of this key: from the cache, or made, whole or not at all.

        The script has the variables `given`, and `told` as arguments.
        """
        layer = Layer(key, self._cache / "layers" / key)
        self._used.add(key)
        if layer.directory.is_dir():
            return layer
        self._say(doing if len(doing) < 100 else f"{doing[:97]}...")
        begin = time.monotonic()
        with self._scratch() as scratch:
            made = scratch / "made" / "files"
            for name in ("made/files", "work", "root", "seen", "empty"):
                (scratch / name).mkdir(parents=True)
            made.chmod(0o755)
            env = {
                "PATH": PATH,
                "SEEN": str(scratch / "seen"),
                **given,
                "LAYER": str(made),
                "WORK": str(scratch / "work"),
                "ROOT": str(scratch / "root"),
                "EMPTY": str(scratch / "empty"),
            }
            _run(doing, script, env, *(f"{name}={value}" for name, value in (told or {}).items()))
            made.parent.rename(layer.directory)
        self._say(f"  {time.monotonic() - begin:.1f} s")
        return layer

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        scratch = Path(tempfile.mkdtemp(dir=self._cache, prefix="making-"))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch)


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _run(doing: str, script: str, env: Mapping[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
            *("/bin/sh", "-euc", script, "sh", *arguments),
        ],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        lines = "\n".join(done.stdout.splitlines()[-20:])
        raise RuntimeError(f"`{doing}` failed with status {done.returncode}:\n{lines}")
