"""Settings and secrets: what a process is told."""

__all__ = [
    "functions",
    "maintenance",
    "reading",
    "secret_files",
    "settings",
    "sources",
    "stores",
    "topics",
]
