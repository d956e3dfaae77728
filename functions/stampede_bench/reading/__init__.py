"""What readers ask for: by id, by position, whole nights."""

__all__ = [
    "images",
]
