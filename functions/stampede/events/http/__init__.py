"""The HTTP server of a function, with bounds on what one client may hold."""

__all__ = [
    "bounded_protocol",
    "byte_budget",
    "endpoint",
    "large_bodies",
    "probes",
    "status_server",
]
