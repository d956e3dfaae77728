"""Who may send an event, and how a sender shows that it may."""

__all__ = [
    "access",
    "broker_token",
    "sender_credentials",
]
