"""A process and its machine: time, threads, signals, progress, memory of bytes."""

__all__ = [
    "bounded_pool",
    "clock",
    "counts",
    "decompression",
    "lazy_arrow_compute",
    "leb128",
    "progress",
    "quick_imports",
    "signals",
    "timescale",
]
