"""This version of Stampede beside an earlier one, each run by its own commands."""

__all__ = [
    "comparison",
]
