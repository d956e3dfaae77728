"""How many requests a second one client may make of one scope: token buckets in bounded memory."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from math import ceil

from starlette.requests import Request

from stampede.errors import SetupError
from stampede.read.errors import TooManyRequests

RATES = {"pages": 50.0, "cutouts": 200.0, "lightcurves": 200.0, "bulk": 1.0, "ledger": 5.0}
"""Requests a second. A page of an object loads up to 20 images at once."""
BURST_SECONDS = 20.0
"""So many seconds' requests may come at once."""
CLIENTS = 20_000
"""Buckets that are kept, 4 MB. The one that was used longest ago goes first."""


class ClientLimits:
    """The rate of each client in each scope.

    Parameters
    ----------
    rates
        Requests a second by scope; a scope without a rate has no limit.
    """

    def __init__(
        self, rates: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        if wrong := [scope for scope in rates if scope not in RATES or rates[scope] <= 0]:
            raise SetupError(f"STAMPEDE_CLIENT_RATES: {wrong[0]!r} is no scope with a rate above 0")
        self._rates = rates
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def count(self, client: str, scope: str) -> None:
        """Count one request. Raises `TooManyRequests`."""
        rate = self._rates.get(scope)
        if rate is None:
            return
        now, most = self._clock(), max(1.0, rate * BURST_SECONDS)
        left, then = self._buckets.get((client, scope), (most, now))
        left = min(most, left + (now - then) * rate)
        if left < 1:
            raise TooManyRequests(scope, ceil((1 - left) / rate))
        self._buckets[client, scope] = left - 1, now
        self._buckets.move_to_end((client, scope))
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)


_SCHEMES = {"http": "http", "https": "https"}
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9a-fA-F:]+\](:[0-9]+)?")


class Proxies:
    """The proxies whose X-Forwarded-For is believed.

    Parameters
    ----------
    networks
        Their addresses or networks, for example ``10.0.0.0/8``.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        try:
            self._networks: list[IPv4Network | IPv6Network] = [*map(ip_network, networks)]
        except ValueError as error:
            raise SetupError(f"STAMPEDE_TRUSTED_PROXIES: {error}") from None

    def client_of(self, request: Request) -> str:
        """The client's address: the last that no trusted proxy has; of IPv6 its network (/64)."""
        address = request.client.host if request.client else ""
        forwarded = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        for earlier in reversed(forwarded):
            if not self._trusts(address) or not _is_address(earlier.strip()):
                break
            address = earlier.strip()
        return _network_of(address)

    def origin_of(self, request: Request) -> str:
        """Scheme and host by which the client reaches this server; empty if the host is no host."""
        scheme, host = request.url.scheme, request.url.netloc
        if self._trusts(request.client.host if request.client else ""):
            scheme = _SCHEMES.get(request.headers.get("x-forwarded-proto", ""), scheme)
        return f"{scheme}://{host}" if _HOST.fullmatch(host) else ""

    def _trusts(self, address: str) -> bool:
        return _is_address(address) and any(ip_address(address) in n for n in self._networks)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _network_of(address: str) -> str:
    if not _is_address(address):
        return address[:64]
    parsed = ip_address(address)
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed) >> 64 << 64, 64)))
