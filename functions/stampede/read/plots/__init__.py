"""Plots as SVG: light curves, and the bars of the ledger."""

__all__ = [
    "ledger_bars",
    "light_curve",
    "marks",
    "ticks",
]
