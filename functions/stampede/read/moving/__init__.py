"""Bodies of the solar system by their designations: a route of their observations, and a page."""

__all__ = ["observations"]
