"""Layers: the files that each step of a stage changes, cached by everything the step depends on.

A step runs on an overlay of the layers below it, so its changes are a directory of their own. It
runs in a mount and a pid namespace that end with it: nothing stays mounted.
"""

import contextlib
import hashlib
import json
import re
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

_DEBIAN = re.compile(r"debian:(?P<suite>[a-z]+)-slim(@sha256:[0-9a-f]{64})?")


class Layer(NamedTuple):
    """One layer in the cache."""

    key: str
    directory: Path

    @property
    def files(self) -> Path:
        """Its files, as an overlay's upper directory."""
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
    """Layers, the lowest first, and the settings of a container."""

    layers: tuple[Layer, ...]
    env: Mapping[str, str]
    user: str | None = None
    entrypoint: Sequence[str] | None = None


class Builder:
    """Builds images from Dockerfiles.

    Parameters
    ----------
    context
        The files that COPY may take.
    cache
        Directory of all layers, for one builder at a time. Delete it to build everything again,
        with today's packages.
    progress
        Called with a line for every step that is not in the cache.
    architecture
        Another one than this machine's. Its programs must run here, as through qemu-user-static.
    """

    def __init__(
        self,
        context: Context,
        cache: Path,
        progress: Callable[[str], None],
        architecture: str = "",
    ) -> None:
        self._context, self._cache, self._progress = context, cache, progress
        self._architecture = architecture
        self._used: set[str] = set()
        (cache / "layers").mkdir(parents=True, exist_ok=True)

    def build(self, stages: Sequence[Stage], target: str, known: Mapping[str, Image]) -> Image:
        """The image of the stage `target`, or of the last for ``""``. Builds only what it needs.

        Parameters
        ----------
        stages, target
            A Dockerfile's stages, and the name of the one to build.
        known
            Images that FROM may name, in addition to Debian's slim ones.
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
        """Keep the layers of this build for the next build of `name`; delete unused layers."""
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
            variables = {"LOWER": lower, "COMMAND": step.command, "OUTSIDE": files()}
            image_env = {"HOME": "/root", **outside(), **env}
            return self._make(key, f"RUN {step.command}", RUN, variables, image_env)
        sources = " ".join(f"/{source.strip('/')}" for source in step.sources)
        doing = f"COPY {' '.join(step.sources)} {step.target}"
        variables = {"LOWER": lower, "SOURCES": sources, "TARGET": step.target, "FROM": ""}
        if step.stage is not None:
            other = image_of(step.stage).layers
            variables["FROM"] = ":".join(str(layer.files) for layer in reversed(other))
            return self._make(_key(below[-1].key, doing, other[-1].key), doing, COPY, variables)
        key = _key(below[-1].key, doing, self._context.digest(step.sources))
        with tempfile.TemporaryDirectory(dir=self._cache) as seen:
            for source in step.sources:
                self._context.copy(source, Path(seen) / source.strip("/"))
            return self._make(key, doing, COPY, {**variables, "SEEN": seen})

    def _debian(self, name: str) -> Image:
        """Debian's slim image, from today's packages. Its digest is part of the layer's key alone.

        So a new digest makes a new base here too.
        """
        of = [self._architecture] if self._architecture else []
        chosen = f"--arch={self._architecture}" if of else ""
        variables = {"SUITE": debian_suite(name), "ARCHITECTURE": chosen, **outside()}
        layer = self._make(_key(name, DEBIAN, *of), f"FROM {name}", DEBIAN, variables)
        return Image((layer,), {"PATH": PATH})

    def _make(
        self,
        key: str,
        doing: str,
        script: str,
        variables: Mapping[str, str],
        image_env: Mapping[str, str] | None = None,
    ) -> Layer:
        """The layer of this key, from the cache or built. A failed step leaves nothing.

        The script runs with the environment `variables` and gets `image_env` as arguments.
        """
        layer = Layer(key, self._cache / "layers" / key)
        self._used.add(key)
        if layer.directory.is_dir():
            return layer
        self._progress(doing if len(doing) < 100 else f"{doing[:97]}...")
        begin = time.monotonic()
        with self._scratch() as scratch:
            made = scratch / "made" / "files"
            for name in ("made/files", "work", "root", "seen", "empty"):
                (scratch / name).mkdir(parents=True)
            made.chmod(0o755)
            env = {
                "PATH": PATH,
                "SEEN": str(scratch / "seen"),
                **variables,
                "LAYER": str(made),
                "WORK": str(scratch / "work"),
                "ROOT": str(scratch / "root"),
                "EMPTY": str(scratch / "empty"),
            }
            arguments = (f"{name}={value}" for name, value in (image_env or {}).items())
            _run(doing, script, env, *arguments)
            made.parent.rename(layer.directory)
        self._progress(f"  {time.monotonic() - begin:.1f} s")
        return layer

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        scratch = Path(tempfile.mkdtemp(dir=self._cache, prefix="making-"))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch)


def debian_suite(name: str) -> str:
    """The suite of Debian whose slim image this is. Raises `ValueError` if it is another image."""
    found = _DEBIAN.fullmatch(name)
    if not found:
        raise ValueError(
            f"FROM {name}: without a registry only debian:SUITE-slim can be made, "
            "with or without @sha256:DIGEST"
        )
    return found["suite"]


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
