"""Choose how an image is built: with Docker, or as root without it."""

import os
from typing import Literal

from images.docker import refusal

BuilderName = Literal["docker", "chroot"]
_ADVICE = """\
Without root, an image needs a Docker daemon that obeys you and can pull:
  sudo apt-get install docker.io
  sudo usermod --append --groups docker $USER   # then log in again
Or build it as root, without Docker."""


def choose(wanted: BuilderName | None, base: str) -> BuilderName:
    """The builder: the one that is wanted; else Docker if it can build, else chroot for root.

    Parameters
    ----------
    wanted
        None for any.
    base
        The image that Docker must have or can pull.

    Raises
    ------
    RuntimeError
        The present user can use neither, or not the one that is wanted.
    """
    root = os.geteuid() == 0
    if wanted == "chroot":
        if not root:
            raise RuntimeError("--builder chroot needs root, for overlays and chroot")
        return "chroot"
    if not (refused := refusal(base)):
        return "docker"
    if wanted:
        raise RuntimeError(refused)
    if not root:
        raise RuntimeError(f"{refused}.\n{_ADVICE}")
    return "chroot"
