"""The token by which a sender identifies itself to a Broker.

With Knative's feature `authentication-oidc` a Broker requires a token and mounts one beside
K_SINK; an EventPolicy names the senders that may use the Broker.
"""

from collections.abc import Mapping
from pathlib import Path


def identified(headers: Mapping[str, str], token: Path) -> dict[str, str]:
    """Headers with the token, if there is one. Read on every call: it is renewed in place."""
    try:
        return {**headers, "authorization": f"Bearer {token.read_text().strip()}"}
    except OSError:
        return dict(headers)
