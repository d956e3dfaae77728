"""Settings and secrets: what a process is told."""

__all__ = [
    "secret_files",
    "settings",
]
