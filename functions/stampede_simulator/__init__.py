"""The simulator: deterministic, valid LSST and ZTF alerts of an invented sky."""

__all__ = [
    "alert_bytes",
    "simulator",
    "sky",
    "write",
]
