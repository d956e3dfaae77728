"""Tokens of an OpenID Connect provider, and the scopes that they open."""

from typing import Any

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.http.jwt_verifier import InvalidToken, Issuer
from stampede.read.access.bearer_tokens import ALL, SCOPES, Token


class Oidc:
    """The tokens of one issuer, for one audience. Raises `SetupError`."""

    def __init__(self, settings: Settings) -> None:
        if not settings.oidc_audience:
            raise SetupError("STAMPEDE_OIDC_AUDIENCE is not set: any token of the issuer would do")
        self._issuer = Issuer(settings.oidc_issuer, settings.oidc_audience)
        self._prefix = settings.oidc_prefix
        everyone = frozenset(settings.oidc_scopes.replace(",", " ").split())
        if unknown := everyone - {*SCOPES, ALL}:
            raise SetupError(f"STAMPEDE_OIDC_SCOPES: no scope {min(unknown)!r}")
        self._everyone = everyone

    def find(self, text: str) -> Token | None:
        """The token, unless it is not valid. May wait for the issuer. Raises `IssuerDown`."""
        try:
            claims = self._issuer.claims(text)
        except InvalidToken:
            return None
        return Token(f"oidc {claims['sub']}", self._everyone | self._scopes(claims))

    def _scopes(self, claims: dict[str, Any]) -> frozenset[str]:
        """Scopes in the claim `scope` (RFC 8693: text), or `scp` (a list), without the prefix."""
        found = claims.get("scope", claims.get("scp", ""))
        words = found.split() if isinstance(found, str) else found
        if not isinstance(words, list):
            return frozenset()
        plain = (str(word).removeprefix(self._prefix) for word in words if _has(word, self._prefix))
        return frozenset(plain) & {*SCOPES, ALL}


def _has(word: object, prefix: str) -> bool:
    return isinstance(word, str) and word.startswith(prefix)
