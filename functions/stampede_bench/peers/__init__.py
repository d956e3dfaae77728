"""Other systems that keep alerts, run from checkouts of their own code on the same servers."""

__all__ = [
    "checkout",
]
