"""thumbnails: draws the images of a new pack as small pictures."""

__all__ = [
    "check",
    "handler",
]
