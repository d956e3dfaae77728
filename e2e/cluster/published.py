"""The published images of what the tests' cluster runs, by name and version.

The tests build these programs from Go modules. Everybody else pulls the images of the same
releases; ``make release`` lists them in images.txt. The modules' own manifests name the programs.
"""

import re
from typing import NamedTuple

from tools.releases.manifests import texts_in

from e2e.cluster.built import keda
from e2e.cluster.built.go_modules import pinned_sources
from e2e.cluster.built.images import EVENTING, SERVING, TRAEFIK, ModuleImages

# What a release's serving-core.yaml, eventing-core.yaml, in-memory-channel.yaml and
# mt-channel-broker.yaml are made of.
_FOLDERS = {
    SERVING: ("config/core",),
    EVENTING: (
        "config/core",
        "config/channels/in-memory-channel",
        "config/brokers/mt-channel-broker",
    ),
}
_BEHIND = 27  # Knative's module 0.50 is release 1.23
_PROGRAM = re.compile(r"ko://(knative\.dev/\S+)")


class Group(NamedTuple):
    """Images, and what needs them."""

    purpose: str
    images: tuple[str, ...]


def groups() -> list[Group]:
    """Images of Knative, its ingress and KEDA. Fetches the sources of the pinned modules.

    Raises
    ------
    Failed
        Go is missing, or cannot fetch a module.
    """
    version = keda.VERSION.removeprefix("v")
    names = (*(program.published for program in keda.PROGRAMS), keda.WEBHOOKS)
    return [
        Group(f"Knative Serving {release(SERVING)}", _of_knative(SERVING)),
        Group(
            f"Knative Eventing {release(EVENTING)} with channels in memory", _of_knative(EVENTING)
        ),
        Group("Traefik, if it is your ingress", (f"docker.io/library/traefik:{TRAEFIK.version}",)),
        Group("KEDA, if it is to scale sources", tuple(f"{name}:{version}" for name in names)),
    ]


def release(module: ModuleImages) -> str:
    """The release of Knative that a module is part of, such as 1.23.0."""
    found = re.fullmatch(r"v0\.(\d+)\.(\d+)", module.version)
    assert found is not None, module.version
    return f"1.{int(found[1]) - _BEHIND}.{found[2]}"


def _of_knative(module: ModuleImages) -> tuple[str, ...]:
    """Names as Knative publishes them. Its YAML files have digests, which are those of the tags."""
    sources = pinned_sources(module.module)
    files = (file for folder in _FOLDERS[module] for file in (sources / folder).rglob("*.yaml"))
    programs = {
        found[1]
        for file in files
        for text in texts_in(file.read_text())
        if (found := _PROGRAM.fullmatch(text))
    }
    return tuple(
        f"gcr.io/knative-releases/{program}:v{release(module)}" for program in sorted(programs)
    )
