"""A sender waits for the response, tries again, and makes a dead letter of what is refused."""

__all__ = [
    "concurrent_send",
    "delivery",
    "dispatcher",
    "in_flight",
    "offset_tracker",
    "outlet",
    "poison_events",
    "response",
    "sink",
]
