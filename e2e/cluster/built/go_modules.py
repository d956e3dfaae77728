"""Go modules: their pinned versions, their sources, and the programs built from them.

All programs are built as one module, ``programs``: Go compiles the packages that Kubernetes,
Knative, Traefik, CoreDNS and helm have in common only once.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from e2e.cluster.places import BUILT, LOGS
from e2e.cluster.steps import run

PROGRAMS_MODULE = BUILT / "programs"
_ADVICE = "Go 1.25 or later must be installed and able to fetch modules (`go env GOPROXY`)."


@cache
def pinned_version(module: str) -> str:
    """The version at which ``programs`` pins a module."""
    text = (PROGRAMS_MODULE / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    assert found is not None, f"programs/go.mod does not pin {module}"
    return found[1]


def pinned_sources(module: str) -> Path:
    """Directory of the sources of a pinned module."""
    return download(module, pinned_version(module))


@cache
def download(module: str, version: str) -> Path:
    """Directory of a module's sources in Go's cache, which Go fetches and verifies if missing.

    Raises
    ------
    Failed
        Go is missing, or cannot fetch the module.
    """
    output = run(
        *("go", "mod", "download", "-json", f"{module}@{version}"),
        log=LOGS / f"go-download-{module.replace('/', '-')}.log",
        cwd=Path(tempfile.gettempdir()),
        env={"GOWORK": "off", "GOFLAGS": "-mod=mod"},
        advice=_ADVICE,
    )
    return Path(json.loads(output)["Dir"])


def copy_sources(
    sources: Path,
    target: Path,
    ignore: Callable[[str, list[str]], Iterable[str]] | None = None,
) -> None:
    """Copy sources out of Go's cache, which is read-only, so that they can be changed."""
    shutil.copytree(sources, target, ignore=ignore, copy_function=shutil.copyfile)
    for directory in (target, *target.rglob("*/")):
        directory.chmod(0o755)


def build(
    packages: Sequence[str],
    target: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
    go_mod: Path | None = None,
    module: Path = PROGRAMS_MODULE,
) -> None:
    """Build one package of a module into a file, or several into a directory.

    Parameters
    ----------
    variables
        Go variables that the linker sets.
    go_mod
        The ``go.mod`` to build with; by default the module's.
    module
        Directory of the module, by default ``programs``.

    Raises
    ------
    Failed
        The build failed.
    """
    go_mod = go_mod or module / "go.mod"
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target if target.is_dir() else target.with_name(f"{target.name}.partial")
    linker = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in variables.items())])
    run(
        *("nice", "go", "build", "-trimpath", "-buildvcs=false", f"-modfile={go_mod}"),
        # No debug information and a lazy garbage collector (GOGC) save 8 % and 12 % of the CPU
        # time. Use the same flags for all programs: Go shares only what is built alike.
        *("-gcflags=all=-dwarf=false", "-ldflags", linker, "-o", partial, *packages),
        log=LOGS / f"go-build-{target.name}.log",
        cwd=module,
        env={"CGO_ENABLED": "0", "GOGC": "400", "GOWORK": "off"},
        advice=_ADVICE,
    )
    if partial != target:
        partial.rename(target)
