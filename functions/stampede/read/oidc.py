"""Tokens of an OpenID Connect provider: JSON Web Tokens (RFC 7519), verified with its public keys.

The keys come from the issuer (OpenID Connect Discovery 1.0, section 4) and are kept. They are asked
for again when a token names a key that is not known, but at most every `ASK_SECONDS`: strangers
can invent names of keys.
"""

import threading
import time
from typing import Any

import urllib3

from stampede.errors import SetupError
from stampede.logs import get_logger
from stampede.read.errors import IssuerDown
from stampede.read.tokens import ALL, SCOPES, Token
from stampede.settings import Settings

log = get_logger()

ASK_SECONDS = 30.0
KEEP_SECONDS = 3600.0
"""Keys are asked for again after this time, so that a withdrawn one ends."""
LEEWAY = 30.0
"""Seconds by which clocks may differ."""
LONGEST = 16_384  # bytes of a token
# Signatures by a private key alone: with a shared secret, a public key would do as the secret.
ALGORITHMS = [*("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "ES256", "ES384", "EdDSA"]


class Oidc:
    """The tokens of one issuer, for one audience. Raises `SetupError`."""

    def __init__(self, settings: Settings) -> None:
        self._issuer = settings.oidc_issuer
        self._audience = settings.oidc_audience
        if not self._audience:
            raise SetupError("STAMPEDE_OIDC_AUDIENCE is not set: any token of the issuer would do")
        self._prefix = settings.oidc_prefix
        everyone = frozenset(settings.oidc_scopes.replace(",", " ").split())
        if unknown := everyone - {*SCOPES, ALL}:
            raise SetupError(f"STAMPEDE_OIDC_SCOPES: no scope {min(unknown)!r}")
        self._everyone = everyone
        self._http = urllib3.PoolManager(timeout=5.0, retries=False)
        self._lock = threading.Lock()
        self._keys: dict[str | None, Any] = {}
        self._asked = float("-inf")

    def find(self, text: str) -> Token | None:
        """The token, unless it is not valid. May wait for the issuer. Raises `IssuerDown`."""
        import jwt  # no other way in needs it

        if len(text) > LONGEST:
            return None
        try:
            key = self._key(jwt.get_unverified_header(text).get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                text,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.InvalidTokenError, jwt.InvalidKeyError):
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

    def _key(self, name: str | None) -> Any:
        """The public key of that name, None if there is none. Raises `IssuerDown`."""
        with self._lock:
            age = time.monotonic() - self._asked
            if age > KEEP_SECONDS or (name not in self._keys and age > ASK_SECONDS):
                self._asked = time.monotonic()
                try:
                    self._keys = self._fetch()
                except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
                    log.error("keys of the issuer not read", error=str(error))
                    if not self._keys:
                        self._asked = float("-inf")
                        raise IssuerDown(
                            "the issuer of tokens does not answer: try again"
                        ) from None
            return self._keys.get(name)

    def _fetch(self) -> dict[str | None, Any]:
        import jwt

        discovery = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        configuration = self._json(discovery)
        if configuration["issuer"] != self._issuer:
            raise ValueError(f"the issuer calls itself {configuration['issuer']!r}")
        keys = {}
        for item in self._json(configuration["jwks_uri"])["keys"]:
            try:
                keys[item.get("kid")] = jwt.PyJWK(item)
            except jwt.PyJWTError:
                continue  # a key of a kind that is not known here
        return keys

    def _json(self, url: str) -> Any:
        answer = self._http.request("GET", url, redirect=False)
        if answer.status != 200:
            raise ValueError(f"{url} answers {answer.status}")
        return answer.json()


def _has(word: object, prefix: str) -> bool:
    return isinstance(word, str) and word.startswith(prefix)
