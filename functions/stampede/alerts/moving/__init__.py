"""Bodies of the solar system: their designations, and the alerts that show them."""

__all__ = ["designations", "observations"]
