"""Who sends an event, for a Broker that asks.

Knative's feature `authentication-oidc` has Brokers take events only with a token, and mounts one
beside K_SINK; an EventPolicy says whose are good.
"""

from collections.abc import Mapping
from pathlib import Path


def identified(headers: Mapping[str, str], token: Path) -> dict[str, str]:
    """Headers, and the token where there is one: read each time, as it is renewed in place."""
    try:
        return {**headers, "authorization": f"Bearer {token.read_text().strip()}"}
    except OSError:
        return dict(headers)
