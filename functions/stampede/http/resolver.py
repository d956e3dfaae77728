"""The addresses of hosts: one look-up at a time for each, and remembered for some seconds.

A source opens hundreds of connections at once. If each looked its host up, they would wait for each
other in the four threads that do so, and for a DNS server that a busy node starves. In a cluster a
name with four dots is up to eight queries: each search domain comes first. Connections then failed
by their timeout, were opened again, and asked again.
"""

import asyncio
import random
import socket
from contextlib import suppress
from ipaddress import ip_address

KEPT_SECONDS = 5.0  # as long as CoreDNS lets others keep the address of a Service


class Addresses:
    """Addresses of any number of hosts, for one event loop."""

    def __init__(self) -> None:
        self._lookups: dict[str, asyncio.Task[list[str]]] = {}

    async def of(self, host: str) -> list[str]:
        """IP addresses of a host, in the order in which to try them. Raises `OSError`.

        Those of the family that the system prefers come first, in another order each time: the
        servers behind one name share the connections.
        """
        with suppress(ValueError):
            return [str(ip_address(host))]
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = self._lookups[host] = asyncio.create_task(look_up(host))
            lookup.add_done_callback(lambda done: self._remember(host, done))
        addresses = await asyncio.shield(lookup)  # others wait for it too
        family = ip_address(addresses[0]).version
        return sorted(
            addresses, key=lambda each: (ip_address(each).version != family, random.random())
        )

    def forget(self, host: str) -> None:
        """Look a host up again, because nothing answers at its addresses."""
        if (lookup := self._lookups.get(host)) and lookup.done():
            del self._lookups[host]

    def _remember(self, host: str, lookup: "asyncio.Task[list[str]]") -> None:
        if lookup.cancelled() or lookup.exception():
            self._drop(host, lookup)
        else:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop, host, lookup)

    def _drop(self, host: str, lookup: "asyncio.Task[list[str]]") -> None:
        if self._lookups.get(host) is lookup:
            del self._lookups[host]


async def look_up(host: str) -> list[str]:
    """Ask the system for a host's IP addresses. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
