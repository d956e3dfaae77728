"""Who may use a route: everybody, or who has a token of its scope; and how often."""

import asyncio
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.read.access.bearer_tokens import SCOPES, Token, TokenFile
from stampede.read.access.oidc import Oidc
from stampede.read.access.rate_limits import RATES, ClientLimits, Proxies
from stampede.read.errors import Forbidden, Unauthorized

SCHEMES = ("bearer", "token")
"""Schemes of a token in the header: RFC 6750's, and the one of Lasair's client."""


class Access(NamedTuple):
    """Who may ask the read service what.

    Attributes
    ----------
    tokens
        None: there is no file of tokens.
    oidc
        None: there is no issuer. With neither every scope is open.
    open_scopes
        Scopes that need no token.
    limits
        None: clients may ask as often as they like.
    """

    tokens: TokenFile | None
    oidc: Oidc | None
    open_scopes: frozenset[str]
    limits: ClientLimits | None
    proxies: Proxies

    @classmethod
    def of(cls, settings: Settings) -> "Access":
        """As the settings say. Raises `SetupError`."""
        open_scopes = frozenset(_words(settings.open_scopes))
        if unknown := open_scopes - {*SCOPES}:
            raise SetupError(f"STAMPEDE_OPEN_SCOPES: no scope {min(unknown)!r}")
        rates = {**RATES, **settings.client_rates}
        return cls(
            TokenFile(settings.tokens) if settings.tokens else None,
            Oidc(settings) if settings.oidc_issuer else None,
            open_scopes,
            ClientLimits(rates) if settings.limit_clients else None,
            Proxies(_words(settings.trusted_proxies)),
        )

    def is_open(self, scope: str) -> bool:
        """Whether a scope needs no token; the scope "" never does."""
        guards = self.tokens or self.oidc
        return guards is None or not scope or scope in self.open_scopes

    async def check(self, request: Request, scope: str) -> str | None:
        """The client's name; None if clients are not limited.

        Raises `Unauthorized`, `Forbidden` or `TooManyRequests` if the client may not ask, and
        `IssuerDown` if that cannot be known.
        """
        token = await self._token(request)
        client = None
        if self.limits:
            # One who guesses tokens is counted too, by address.
            client = f"token {token.name}" if token else self.proxies.client_of(request)
            self.limits.count(client, scope)
        if self.is_open(scope):
            return client
        if token is None:
            sent = "authorization" in request.headers
            raise Unauthorized(
                "the token is unknown or has expired" if sent else "this needs a token", sent
            )
        if not token.allows(scope):
            raise Forbidden(scope)
        return client

    async def _token(self, request: Request) -> Token | None:
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip()
        if kind.lower() not in SCHEMES:
            return None
        if self.tokens and (found := self.tokens.find(text)):
            return found
        if self.oidc and text.count(".") == 2:
            return await asyncio.to_thread(self.oidc.find, text)
        return None

    def mark(self, response: Response, scope: str) -> Response:
        """Keep a response that needed a token out of caches that others share."""
        if not self.is_open(scope):
            control = response.headers.get("cache-control", "private")
            response.headers["cache-control"] = control.replace("public", "private")
            response.headers.add_vary_header("Authorization")
        return response


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()
