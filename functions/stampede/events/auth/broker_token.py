"""The token by which a sender identifies itself to a Broker.

With Knative's feature `authentication-oidc` a Broker requires a token and mounts one beside
K_SINK; an EventPolicy names the senders that may use the Broker.
"""

from collections.abc import Mapping
from pathlib import Path


def with_token(headers: Mapping[str, str], token: Path) -> dict[str, str]:
    """These headers, with the token in the file `token` if there is one.

    The file is read on every call, because the token in it is renewed.
    """
    try:
        return {**headers, "authorization": f"Bearer {token.read_text().strip()}"}
    except OSError:
        return dict(headers)
