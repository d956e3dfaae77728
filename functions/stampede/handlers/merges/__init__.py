"""Merges packs and raw alerts in each pass of `compact`, once no more of their night come."""

__all__ = ["images", "merges", "packets", "raw_alerts", "settled_nights"]
