"""Contrast of the pages' colours, as WCAG 2.2 defines it (success criteria 1.4.3 and 1.4.11).

axe measures what a page shows, but no text of a single character.
"""

import re
from pathlib import Path

import pytest

from stampede.alerts import surveys
from stampede.lookup.points import NO_BAND
from stampede.read.pages import page as pages

CSS = (Path(pages.__file__).parents[1] / "static" / "page.css").read_text()
LIGHT, DARK = CSS.partition("prefers-color-scheme: dark")[::2]
BANDS = surveys.bands()


def luminance(colour: str) -> float:
    """Relative luminance of #rgb or #rrggbb."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("css", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_a_contrast_of_4_5_and_what_is_drawn_of_3(css):
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6});", css.partition("}")[0]))
    colours |= {name: band.light if css == LIGHT else band.dark for name, band in BANDS.items()}
    for names, least in (
        (("ink", "soft", "accent", "good", "bad"), 4.5),
        (("stored", "warning", *BANDS, NO_BAND), 3.0),
    ):
        for name in names:
            for ground in ("paper", "card"):
                light, dark = sorted((luminance(colours[name]), luminance(colours[ground])))[::-1]
                contrast = (light + 0.05) / (dark + 0.05)
                assert contrast >= least, f"{name} on {ground}: {contrast:.2f}"
