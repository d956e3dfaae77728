"""Run by test_others.py in an environment that has matplotlib and lightkurve: URL OBJECT."""

import sys

import lightkurve
import matplotlib

matplotlib.use("Agg")
import numpy as np

import stampede_client

url, object_id = sys.argv[1:]
with stampede_client.connect(url) as st:
    curve = st.lightcurve(object_id)

axes = curve.plot()
measured = np.isfinite(curve["flux"].value) & ~np.asarray(curve["limit"])
drawn = {bars.get_label(): bars.lines[0].get_xydata() for bars in axes.containers}
assert set(drawn) == set(np.asarray(curve["band"])[measured]), drawn
for band, points in drawn.items():
    rows = curve[measured & (np.asarray(curve["band"]) == band)]
    assert np.array_equal(points[:, 0], rows.time.mjd)
    assert np.array_equal(points[:, 1], rows["flux"].value)
assert axes.get_xlabel() == "MJD (TAI)"
assert axes.get_ylabel() == f"difference flux ({curve['flux'].unit})"
assert axes.get_legend() is not None
axes.figure.canvas.draw()
assert curve.plot(axes) is axes

for band in (None, "r"):
    light = curve.to_lightkurve(band)
    assert isinstance(light, lightkurve.LightCurve)
    rows = curve if band is None else curve[np.asarray(curve["band"]) == band]
    assert np.array_equal(light.time.mjd, rows.time.mjd)
    assert light.flux.unit == rows["flux"].unit
    assert np.array_equal(light.flux.value, rows["flux"].value, equal_nan=True)
    assert np.array_equal(light.flux_err.value, rows["flux_err"].value, equal_nan=True)
    assert list(light["band"]) == list(rows["band"])
assert len(light.remove_nans().normalize()) >= 1
archived = curve.copy()
archived["total_flux"] = archived["flux"]
archived["flux"] = np.nan * archived["flux"]
assert archived.plot().get_ylabel() == "total flux (nJy)"
kept = archived.to_lightkurve().flux.value
assert np.array_equal(kept, curve["flux"].value, equal_nan=True)
frame = curve.to_pandas()
assert str(frame.index.tz) == str(frame["processed_mjd"].dt.tz) == "UTC", frame.dtypes
microseconds = frame.index.tz_convert(None).to_numpy().astype("datetime64[us]").astype(int)
assert np.allclose(microseconds / 1e6, curve.time.utc.unix, rtol=0, atol=1e-4)
assert curve.time.scale == "tai"
print("drawn", *sorted(drawn))
