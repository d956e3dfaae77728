"""The registry of surveys: one entry and one module for each.

To add a survey, write its module (see `survey.Survey`) and add its entry to `MODULES`.
"""

__all__ = [
    "names",
    "rubin",
    "rubin_schemas",
    "survey",
    "surveys",
]

from functools import cache
from importlib import import_module
from typing import cast

from stampede.alerts.surveys.survey import Band, Survey

# Name of the survey to its module. Modules are imported at first use: the read service needs the
# names alone, and the simulator only Rubin's schemas.
MODULES = {
    "lsst": "stampede.alerts.surveys.rubin",
    "ztf": "stampede.alerts.surveys.ztf",
    "winter": "stampede.alerts.surveys.winter",
    "desirt": "stampede.alerts.surveys.desirt",
}


def names() -> tuple[str, ...]:
    """The names of all surveys, in the order of the registry."""
    return tuple(MODULES)


def surveys() -> list[Survey]:
    """All surveys, in the order of the registry."""
    return [_load(module) for module in MODULES.values()]


def named(name: str) -> Survey:
    """The survey of that name. Raises `KeyError` if there is none."""
    return _load(MODULES[name])


def bands() -> dict[str, Band]:
    """The bands of all surveys by name, in the order of the registry and then of wavelength.

    After them come bands that only archives of light curves have.
    """
    from stampede.alerts.surveys import archive_bands

    found: dict[str, Band] = {}
    for bands in (*(survey.BANDS for survey in surveys()), archive_bands.BANDS):
        for name, band in bands.items():
            found.setdefault(name, band)
    return found


def forget() -> None:
    """Load the modules anew when they are asked for: one has changed."""
    _load.cache_clear()


@cache
def _load(module: str) -> Survey:
    return cast(Survey, import_module(module))
