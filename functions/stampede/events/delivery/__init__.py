"""A sender waits for the response, tries again, and makes a dead letter of what is refused."""

__all__ = [
    "concurrent_send",
    "delivery",
    "offset_tracker",
    "poison_events",
    "response",
    "sink",
]
