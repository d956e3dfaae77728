"""The function that Knative's runtime serves."""

from .func import new

__all__ = ["new"]
