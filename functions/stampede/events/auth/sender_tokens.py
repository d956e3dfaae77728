"""The tokens by which the senders of events prove themselves to a function.

They are tokens of Kubernetes' service accounts: those that Knative gives to a Trigger, a PingSource
or a KafkaSource (its feature `authentication-oidc`), and those that a pod mounts. See
docs/adr/0043-tokens-of-senders.md.
"""

import asyncio
import time

from stampede.config.settings import Settings
from stampede.errors import NotAuthorized, SetupError
from stampede.http.jwt_verifier import KEEP_SECONDS, LEEWAY, InvalidToken, Issuer

MOST_KEPT = 1000  # verified tokens; a release has tens of senders


class SenderTokens:
    """The tokens that a function accepts.

    A token is verified once. Then it is known for `KEEP_SECONDS`, or until it expires.

    Parameters
    ----------
    issuer
        Whose tokens are accepted.
    subjects
        Whose service accounts: ``system:serviceaccount:NAMESPACE:NAME``; one that ends with ``*``
        stands for all that begin so.
    """

    def __init__(self, issuer: Issuer, subjects: frozenset[str]) -> None:
        self._issuer = issuer
        self._subjects = {each for each in subjects if not each.endswith("*")}
        self._beginnings = tuple(each[:-1] for each in subjects if each.endswith("*"))
        self._until: dict[str, float] = {}  # seconds since 1970, by token

    def knows(self, token: str) -> bool:
        """Whether the token was verified before, and has not expired since."""
        return self._until.get(token, 0.0) > time.time()

    async def check(self, token: str) -> None:
        """Verify a token. May wait for the issuer.

        Raises
        ------
        NotAuthorized
            It is not valid, or of another subject.
        IssuerDown
            The issuer's keys are not known.
        """
        try:
            claims = await asyncio.to_thread(self._issuer.claims, token)
        except InvalidToken as error:
            raise NotAuthorized(f"the sender's token is not valid: {error}") from None
        subject = str(claims["sub"])
        if subject not in self._subjects and not subject.startswith(self._beginnings):
            raise NotAuthorized(f"{subject} is not one of the senders in STAMPEDE_SENDER_SUBJECTS")
        self._keep(token, float(claims["exp"]) + LEEWAY)

    def _keep(self, token: str, until: float) -> None:
        now = time.time()
        if len(self._until) >= MOST_KEPT:
            self._until = {each: end for each, end in self._until.items() if end > now}
        if len(self._until) < MOST_KEPT:
            self._until[token] = min(until, now + KEEP_SECONDS)


def sender_tokens(settings: Settings) -> SenderTokens | None:
    """The tokens that the settings accept; None without an issuer. Raises `SetupError`."""
    if not settings.sender_issuer:
        if settings.sender_tokens_only:
            raise SetupError("STAMPEDE_SENDER_TOKENS_ONLY needs STAMPEDE_SENDER_ISSUER")
        return None
    subjects = frozenset(settings.sender_subjects.replace(",", " ").split())
    if not (subjects and settings.sender_audience):
        raise SetupError(
            "STAMPEDE_SENDER_ISSUER needs STAMPEDE_SENDER_AUDIENCE and STAMPEDE_SENDER_SUBJECTS: "
            "any token of the issuer would do"
        )
    issuer = Issuer(
        settings.sender_issuer,
        settings.sender_audience,
        any_name=True,
        ca_file=settings.sender_issuer_ca,
        token_file=settings.sender_issuer_token,
    )
    return SenderTokens(issuer, subjects)
