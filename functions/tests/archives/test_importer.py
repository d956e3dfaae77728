"""Files of archives become points of light curves."""

from pathlib import Path

import numpy as np
import pytest

from stampede.archives.importer import Importer, Store
from stampede.archives.layouts import Asked
from stampede.store.objects.memory import MemoryObjects
from tests.support.archives import ONE, OTHER, write_ztf

LATEST = 61000.0


def imported(*files: Path, asked: Asked | None = None, objects: MemoryObjects | None = None):
    """The points of files, and the tally; stored if there are `objects`."""
    importer = Importer("ztfdr24", asked or Asked.of(None, [], []), LATEST)
    store = Store.of(objects) if objects else None
    points = []
    for some in importer.runs(files):
        points += some.to_pylist()
        if store:
            store.append(some)
    return points, importer.tally


def test_a_file_of_a_data_release_of_ztf(tmp_path: Path) -> None:
    points, tally = imported(write_ztf(tmp_path / "ztf.parquet"))
    assert (tally.files, tally.points, tally.refused, tally.faults) == (1, 5, 0, [])
    assert [point["object_id"] for point in points] == [str(ONE)] * 3 + [str(OTHER)] * 2
    first = points[0]
    assert first.pop("total_flux") == pytest.approx(10 ** ((31.4 - 18.0) / 2.5), rel=1e-6)
    assert first.pop("total_flux_err") == pytest.approx(
        10 ** ((31.4 - 18.0) / 2.5) * 0.03125 * np.log(10) / 2.5, rel=1e-6
    )
    assert first.pop("mjd") == first.pop("processed_mjd") == 58300.25 + 37 / 86400
    assert first.pop("source_id") >> 20 == round((58300.25 * 86400 + 37) * 1000)
    assert {name: value for name, value in first.items() if value is not None} == {
        "object_id": str(ONE),
        "survey": "ztfdr24",
        "forced": False,
        "limit": False,
        "withdrawn": False,
        "band": "g",
        "ra": 250.25,
        "dec": 38.5,
        "detector": 12,
        "procstatus": "0",
    }
    assert [point["procstatus"] for point in points] == ["0", "0", "32768", "0", "32768"]
    assert {point["band"] for point in points[3:]} == {"r"}
