"""Raw alerts: all fields of each alert in the survey's own columns, for bulk analysis.

``alerts/<survey>/<schema>/<night>/<digest>.parquet``: one row per alert, nested as in the survey's
schema, without cutouts (they are in the packs) and without history (each of its points was an
alert of its own). Files of one schema lie together, so that any tool reads them as one table. An
alert that was sent twice may be there twice: readers take one row of each id (docs/store.md).
"""

from hashlib import sha256

from stampede.alerts.schema_groups import RawAlerts
from stampede.store.parquet.checksums import write
from stampede.store.programmes.keys import suffix
from stampede.store.runs.run_name import digest, name_of

PREFIX = "alerts/"


def write_raw(alerts: RawAlerts) -> tuple[str, memoryview, str]:
    """Key, bytes and SHA-256 of the Parquet object. The same alerts give the same bytes."""
    schema = alerts.table.schema
    # LZ4: hundreds of columns of a few hundred rows, and Arrow takes 20 us to begin a Zstandard
    # frame. No dictionaries, which cost more than they save too.
    data = memoryview(
        write(alerts.table, compression="lz4", use_dictionary=False, write_statistics=False)
    )
    of_schema, whole = digest(str(schema))[:8], sha256(data).hexdigest()
    name = name_of(whole) + suffix([] if alerts.programid is None else [alerts.programid])
    key = f"{PREFIX}{alerts.survey}/{of_schema}/{alerts.night}/{name}.parquet"
    return key, data, whole
