"""Raw alerts: what a survey says of an alert, in its own columns, for those who mine the bucket.

``alerts/<survey>/<schema>/<night>/<digest>.parquet``: one row per alert, nested as the survey
nests it, without cutouts (they are in the packs) and without history (each point of it was an
alert of its own). Files of one schema lie together, so that any tool reads them as one table;
an alert that came twice may be there twice.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from stampede.alerts.groups import RawAlerts
from stampede.store.runs import digest

PREFIX = "alerts/"


def write_raw(alerts: RawAlerts) -> tuple[str, memoryview]:
    """Key and bytes of the Parquet object; the same alerts give the same."""
    schema = alerts.table.schema
    sink = pa.BufferOutputStream()
    # zstd, as these are read in bulk, never one by one; no dictionaries, since with hundreds of
    # columns and a few hundred rows they cost more than they save.
    pq.write_table(
        alerts.table, sink, compression="zstd", use_dictionary=False, write_statistics=False
    )
    data = memoryview(sink.getvalue())
    kind, name = digest(str(schema))[:8], digest(data)
    return f"{PREFIX}{alerts.survey}/{kind}/{alerts.night}/{name}.parquet", data
