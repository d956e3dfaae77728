"""Bands that archives of light curves have and no survey here, with colours of the surveys' bands.

The systems are told apart by their names alone, as in Johnson and Cousins' V, ATLAS's c and o,
Gaia's BP and RP, WISE's W1. Of one system no two bands have a colour in common.
"""

from collections.abc import Mapping

from stampede.alerts.surveys import rubin, winter
from stampede.alerts.surveys.survey import Band

_SAME_COLOUR = {
    **{"U": "u", "B": "Y", "V": "g", "R": "r", "I": "i", "H": "Hs", "K": "y", "Ks": "y"},
    **{"c": "J", "o": "i", "w": "z", "G": "g", "BP": "u", "RP": "r"},
    **{"T": "y", "W1": "Y", "W2": "z"},
}
_COLOURS = {**rubin.BANDS, **winter.BANDS}
BANDS: Mapping[str, Band] = {name: _COLOURS[like] for name, like in _SAME_COLOUR.items()}
