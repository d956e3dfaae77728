"""Files of archives of light curves, in the layout of ZTF's data releases."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ZTF_DR = pa.schema(
    [
        ("objectid", pa.int64()),
        ("filterid", pa.int8()),
        ("fieldid", pa.int16()),
        ("rcid", pa.int8()),
        ("objra", pa.float32()),
        ("objdec", pa.float32()),
        ("nepochs", pa.int64()),
        ("hmjd", pa.list_(pa.float64())),
        ("mag", pa.list_(pa.float32())),
        ("magerr", pa.list_(pa.float32())),
        ("clrcoeff", pa.list_(pa.float32())),
        ("catflags", pa.list_(pa.int32())),
    ]
)
ONE, OTHER = 686103400034440, 686203400012345


def ztf_row(object_id: int = ONE, epochs: int = 3, **more: Any) -> dict[str, Any]:
    """A row of one object, one measurement a day."""
    return {
        "objectid": object_id,
        "filterid": 1,
        "fieldid": 686,
        "rcid": 12,
        "objra": 250.25,
        "objdec": 38.5,
        "nepochs": epochs,
        "hmjd": [58300.25 + day for day in range(epochs)],
        "mag": [18.0 + day / 8 for day in range(epochs)],
        "magerr": [0.03125] * epochs,
        "clrcoeff": [-0.05] * epochs,
        "catflags": [0] * (epochs - 1) + [32768],
    } | more


def write_ztf(path: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """A file of these rows, by default of two objects at one place in g and r."""
    rows = rows or [ztf_row(), ztf_row(OTHER, 2, filterid=2)]
    pq.write_table(pa.Table.from_pylist(rows, ZTF_DR), path, row_group_size=2)
    return path
