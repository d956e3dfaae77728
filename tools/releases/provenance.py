"""How the files of a release were made: the predicate of SLSA's provenance 1.

It has no dates, so that the same commit gives the same bytes.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

# The project has no public address, so these names are URNs.
BUILD_TYPE = "urn:stampede:make-release:1"
BUILDER = "urn:stampede:tools/release"
_PINNED = ("requirements.txt", "tools/releases/requirements.txt")


def provenance(root: Path, version: str, commit: str, changed: bool) -> dict[str, Any]:
    """What a release was made from.

    Parameters
    ----------
    root
        The project.
    changed
        Whether its files are others than the commit's.
    """
    base = re.search(
        r"^ARG BASE=(\S+)@sha256:(\w+)", (root / "functions/Dockerfile").read_text(), re.M
    )
    if base is None:
        raise ValueError("functions/Dockerfile does not pin its base by a digest")
    source = {"uri": "git+urn:stampede", "digest": {"gitCommit": commit}}
    if changed:
        source["annotations"] = {"changed": True}
    pinned = [
        {"uri": f"git+urn:stampede#{name}", "digest": {"sha256": _digest(root / name)}}
        for name in _PINNED
    ]
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"version": version},
            "resolvedDependencies": [
                source,
                *pinned,
                {"uri": f"pkg:docker/{base[1]}", "digest": {"sha256": base[2]}},
            ],
        },
        "runDetails": {"builder": {"id": BUILDER}},
    }


def text(predicate: dict[str, Any]) -> str:
    """The predicate as a file."""
    return json.dumps(predicate, indent=1, sort_keys=True) + "\n"


def made_of(predicate: dict[str, Any]) -> tuple[str, bool]:
    """The commit of a predicate, and whether files were changed since."""
    source = predicate["buildDefinition"]["resolvedDependencies"][0]
    return source["digest"]["gitCommit"], source.get("annotations", {}).get("changed", False)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
