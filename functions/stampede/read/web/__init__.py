"""What all routes share of HTTP: parameters, conditional requests, headers."""

__all__ = [
    "chunks",
    "conditional",
    "cors",
    "form",
    "id_list",
    "middleware",
    "parameters",
    "static_files",
]
