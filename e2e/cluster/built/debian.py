"""Debian packages."""

import os
import shutil
from collections.abc import Mapping

from e2e.cluster.places import LOGS
from e2e.cluster.steps import Failed, run, step


def install_packages(packages: Mapping[str, str]) -> None:
    """Install the packages that are missing: `packages` has a program or file of each.

    Raises
    ------
    Failed
        We are not root, or apt cannot install them.
    """
    missing = [package for program, package in packages.items() if shutil.which(program) is None]
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failed(f"this machine lacks {', '.join(missing)}: sudo {' '.join(command)}")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"Debian packages: {', '.join(missing)}"):
        run("apt-get", "update", log=LOGS / "apt-update.log", env=env)
        run(*command, log=LOGS / "apt-install.log", env=env)
