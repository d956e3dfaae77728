"""Plots as SVG: light curves, maps, and the bars of the ledger."""

__all__ = [
    "ledger_bars",
    "light_curve",
    "marks",
    "numbers",
    "phase_curve",
    "sky_plot",
    "ticks",
    "value_range",
]
