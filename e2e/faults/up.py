"""`stampede up` whose processes reach both stores through proxies and have clocks of their own.

``E2E_PROXIES`` is JSON: the port of a store, and the port of the proxy that stands before it.
``E2E_CLOCKS`` is the directory of `e2e.faults.processes.Clocks`; without it no clock is wrong.
"""

import json
import os
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e.faults.processes import clock_environment
from stampede.config.settings import Settings
from stampede_local.servers import LocalServers
from stampede_local.system import System


def main() -> None:
    """Run `stampede` with this process's arguments."""
    for name in ("start", "start_second_site"):
        setattr(LocalServers, name, _through_proxies(getattr(LocalServers, name)))
    if directory := os.environ.get("E2E_CLOCKS"):
        System._start_process = _with_clock(  # type: ignore[method-assign]
            Path(directory), System._start_process
        )
    runpy.run_module("stampede", run_name="__main__", alter_sys=True)


def _through_proxies(start: Callable[..., Settings]) -> Callable[..., Settings]:
    ports = json.loads(os.environ["E2E_PROXIES"])

    def proxied(*arguments: Any) -> Settings:
        return with_ports(start(*arguments), ports)

    return proxied


def _with_clock(directory: Path, start: Callable[..., None]) -> Callable[..., None]:
    def clocked(
        system: System, name: str, function: str, env: Mapping[str, str], *rest: Any
    ) -> None:
        start(system, name, function, {**env, **clock_environment(directory, name)}, *rest)

    return clocked


def with_ports(settings: Settings, ports: Mapping[Any, int]) -> Settings:
    """The settings with other ports of the stores: `ports` has the new one of each."""
    update = {}
    for name in ("store", "replica"):
        address = getattr(settings, name)
        for port, other in ports.items():
            address = address.replace(f"127.0.0.1:{port}/", f"127.0.0.1:{other}/")
        update[name] = address
    return settings.model_copy(update=update)


if __name__ == "__main__":
    main()
