"""A light curve as an astropy TimeSeries."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from astropy.table import Column, MaskedColumn
from astropy.time import Time
from astropy.timeseries import TimeSeries
from astropy.units import Quantity, Unit

if TYPE_CHECKING:
    from lightkurve import LightCurve as LightkurveCurve
    from matplotlib.axes import Axes
    from pandas import DataFrame


class LightCurve(TimeSeries):
    """The points of one object by time, without those that the survey has withdrawn.

    The column ``time`` is the server's ``mjd``, in TAI. The other columns have the server's names
    (docs/columns.md): Quantities where there is a unit, NaN where a float is missing, masked where
    another value is missing.
    """

    @classmethod
    def from_arrow(cls, rows: pa.Table) -> "LightCurve":
        """The light curve in rows of the server, sorted by time."""
        rows = rows.sort_by([("mjd", "ascending")])
        times = Time(rows["mjd"].to_numpy(), format="mjd", scale="tai")
        curve = cls(time=times)
        for field in rows.schema:
            if field.name != "mjd":
                curve[field.name] = _column(rows[field.name], field)
        return curve

    def to_pandas(self, **options: Any) -> "DataFrame":
        """A pandas DataFrame by time, in UTC: its index and times know their zone.

        `options` are those of `astropy.timeseries.TimeSeries.to_pandas`.
        """
        import pandas

        frame = super().to_pandas(**options)
        frame.index = pandas.DatetimeIndex(self.time.utc.datetime64, tz="UTC", name="time")
        for name in frame.columns:
            if isinstance(self[name], Time):
                frame[name] = pandas.DatetimeIndex(self[name].utc.datetime64, tz="UTC")
        return frame

    def to_lightkurve(self, band: str | None = None) -> "LightkurveCurve":
        """The same points as a `lightkurve.LightCurve`, only those of `band` if one is given.

        Their flux is the difference flux, or the total one if no point has that.

        Needs ``pip install 'stampede-client[lightkurve]'``.
        """
        import lightkurve

        points = self if band is None else self[self._text("band") == band]
        name = self._flux_name()
        curve = lightkurve.LightCurve(
            time=points.time, flux=points[name], flux_err=points[f"{name}_err"]
        )
        for name in ("band", "source_id", "forced", "limit"):
            curve[name] = points[name]
        return curve

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw flux by time, a colour and symbol for each band; limits are left out.

        It is the difference flux, or the total one if no point has that.

        Needs ``pip install 'stampede-client[plot]'``. Returns the axes, new ones if none are given.
        """
        import matplotlib.pyplot as plt

        axes = plt.subplots()[1] if ax is None else ax
        bands, name = self._text("band"), self._flux_name()
        shown = np.isfinite(self[name].value) & ~np.asarray(self["limit"])
        for band, symbol, color in _STYLES:
            chosen = shown & (bands == band)
            if chosen.any():
                points = self[chosen]
                axes.errorbar(
                    points.time.mjd,
                    points[name].value,
                    points[f"{name}_err"].value,
                    fmt=symbol,
                    color=color,
                    label=band,
                )
        axes.set_xlabel("MJD (TAI)")
        axes.set_ylabel(f"{'difference' if name == 'flux' else 'total'} flux (nJy)")
        if shown.any():
            axes.legend()
        return axes

    def _flux_name(self) -> str:
        """The column of fluxes: the total ones where no point has another, as in archives."""
        total = self["total_flux"].value
        is_total = not np.isfinite(self["flux"].value).any() and np.isfinite(total).any()
        return "total_flux" if is_total else "flux"

    def _text(self, name: str) -> np.ndarray:
        return np.ma.filled(np.ma.asarray(self[name]), "")


_STYLES = (
    ("u", "v", "#56b4e9"),
    ("g", "o", "#008060"),
    ("r", "^", "#d55e00"),
    ("i", "s", "#990099"),
    ("z", "D", "#8c564b"),
    ("y", "P", "#444444"),
)


def _column(values: pa.ChunkedArray, field: pa.Field) -> Any:
    metadata = field.metadata or {}
    description = metadata.get(b"doc", b"").decode()
    unit = metadata.get(b"unit", b"").decode()
    if field.name == "processed_mjd":
        return Time(values.to_numpy(), format="mjd", scale="tai")
    if pa.types.is_floating(field.type):
        numbers = values.to_numpy()
        if unit:
            return Quantity(numbers, Unit(unit), dtype=numbers.dtype)
        return Column(numbers, description=description)
    array = _plain(values)
    if values.null_count:
        mask = values.is_null().to_numpy()
        return MaskedColumn(array, mask=mask, description=description)
    return Column(array, description=description)


def _plain(values: pa.ChunkedArray) -> np.ndarray:
    """Integers, booleans or text; any value where there is none."""
    if pa.types.is_string(values.type):
        return np.array(values.fill_null("").to_pylist(), dtype=str)
    filled = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
    array: np.ndarray = filled.to_numpy()
    return array
