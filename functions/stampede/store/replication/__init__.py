"""Copies to the second site, and what the sites differ in."""

__all__ = [
    "copy",
    "replica",
    "site_differences",
    "site_local",
]
