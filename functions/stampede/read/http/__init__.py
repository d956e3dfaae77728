"""What all routes share of HTTP: parameters, conditional requests, headers."""

__all__ = [
    "conditional",
    "cors",
    "id_list",
    "middleware",
    "notes",
    "parameters",
    "static_files",
]
