"""An issuer of JSON Web Tokens (RFC 7519), and tokens verified with its public keys.

The keys come from the issuer (OpenID Connect Discovery 1.0, section 4) and are kept. They are asked
for again when a token names a key that is not known, but at most every `ASK_SECONDS`: strangers
can invent names of keys.
"""

import ssl
import threading
import time
from pathlib import Path
from typing import Any

import urllib3

from stampede.errors import IssuerDown, SetupError
from stampede.telemetry.logs import get_logger

log = get_logger()

ASK_SECONDS = 30.0
FAILED_SECONDS = 1.0
"""Keys are asked for again after this time while none are known."""
KEEP_SECONDS = 3600.0
"""Keys are asked for again after this time, so that a withdrawn one ends."""
LEEWAY = 30.0
"""Seconds by which clocks may differ."""
LONGEST = 16_384  # bytes of a token
# Signatures by a private key alone: with a shared secret, a public key would do as the secret.
ALGORITHMS = [*("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "ES256", "ES384", "EdDSA"]


class InvalidToken(Exception):
    """The token is not valid; the text says why."""


class Issuer:
    """The tokens of one issuer, for one audience.

    Parameters
    ----------
    url
        Where its discovery document is: ``URL/.well-known/openid-configuration``.
    audience
        Whom the tokens must be for.
    any_name
        Whether its name, which the tokens must have, may differ from `url`. That of a Kubernetes
        cluster mostly does; its keys are as genuine as the TLS certificate of `url`.
    ca_file
        Certificate authorities that are trusted beside the public ones.
    token_file
        Token to ask for the keys with, where the issuer refuses to tell strangers.

    Raises
    ------
    SetupError
        The certificates cannot be read.
    """

    def __init__(
        self,
        url: str,
        audience: str,
        *,
        any_name: bool = False,
        ca_file: Path | None = None,
        token_file: Path | None = None,
    ) -> None:
        self._url = url
        self._audience = audience
        self._any_name = any_name
        self._token_file = token_file
        self._name = url
        trust = ssl.create_default_context()
        try:
            if ca_file:
                trust.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SetupError(f"certificate authorities of the issuer: {ca_file}: {error}") from None
        self._http = urllib3.PoolManager(timeout=5.0, retries=False, ssl_context=trust)
        self._lock = threading.Lock()
        self._keys: dict[str | None, Any] = {}
        self._asked = float("-inf")

    def claims(self, text: str) -> dict[str, Any]:
        """What a valid token says, at least `exp` and `sub`. May wait for the issuer.

        Raises
        ------
        InvalidToken
            The token is not this issuer's, not for this audience, has expired, or is none.
        IssuerDown
            The issuer's keys are not known, and it does not answer.
        """
        import jwt  # needed only where there is an issuer

        if len(text) > LONGEST:
            raise InvalidToken("it is too long")
        try:
            key = self._key(jwt.get_unverified_header(text).get("kid"))
            if key is None:
                raise InvalidToken("the issuer has no such key")
            claims: dict[str, Any] = jwt.decode(
                text,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._name,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.InvalidTokenError, jwt.InvalidKeyError) as error:
            raise InvalidToken(str(error)) from None
        return claims

    def _key(self, name: str | None) -> Any:
        """The public key of that name, None if there is none. Raises `IssuerDown`."""
        with self._lock:
            age = time.monotonic() - self._asked
            least = ASK_SECONDS if self._keys else FAILED_SECONDS
            if age > KEEP_SECONDS or (name not in self._keys and age > least):
                self._ask()
            if not self._keys:
                raise IssuerDown("the issuer of tokens does not answer: try again")
            return self._keys.get(name)

    def _ask(self) -> None:
        """Read the keys; if that fails, those of before stay."""
        self._asked = time.monotonic()
        try:
            self._keys = self._fetch()
        except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            log.error("keys of the issuer not read", issuer=self._url, error=str(error))

    def _fetch(self) -> dict[str | None, Any]:
        import jwt

        configuration = self._json(f"{self._url.rstrip('/')}/.well-known/openid-configuration")
        name = configuration["issuer"]
        if name != self._url and not self._any_name:
            raise ValueError(f"the issuer calls itself {name!r}")
        keys = {}
        for item in self._json(configuration["jwks_uri"])["keys"]:
            try:
                keys[item.get("kid")] = jwt.PyJWK(item)
            except jwt.PyJWTError:
                continue  # a key of a kind that is not known here
        self._name = name
        return keys

    def _json(self, url: str) -> Any:
        response = self._http.request("GET", url, redirect=False)
        if response.status in (401, 403) and self._token_file and url.startswith("https://"):
            headers = {"authorization": f"Bearer {self._token_file.read_text().strip()}"}
            response = self._http.request("GET", url, redirect=False, headers=headers)
        if response.status != 200:
            raise ValueError(f"{url} answers {response.status}")
        return response.json()
