"""What benchmarks measure with: servers, loads, clients, counters of CPU time and requests."""

__all__ = [
    "bucket",
    "counting_store",
    "cpu",
    "crowd",
    "gateway",
    "http_load",
    "link",
    "load",
    "servers",
    "synthetic",
]
