"""`stampede up` whose processes reach both stores through proxies.

``E2E_PROXIES`` is JSON: the port of a store, and the port of the proxy that stands before it.
"""

import json
import os
import runpy
from collections.abc import Callable, Mapping
from typing import Any

from stampede.settings import Settings
from stampede_local.servers import LocalServers


def main() -> None:
    """Run `stampede` with this process's arguments."""
    for name in ("start", "start_second_site"):
        setattr(LocalServers, name, _through_proxies(getattr(LocalServers, name)))
    runpy.run_module("stampede", run_name="__main__", alter_sys=True)


def _through_proxies(start: Callable[..., Settings]) -> Callable[..., Settings]:
    ports = json.loads(os.environ["E2E_PROXIES"])

    def proxied(*arguments: Any) -> Settings:
        return with_ports(start(*arguments), ports)

    return proxied


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
