"""A light curve as VOTable by astropy, the oracle of `stampede.read.formats.votable`.

By its writer in Python: the one in C, its default, writes beyond its buffer.
"""

from io import BytesIO

import pyarrow as pa
from astropy.io.votable import tree

from stampede.read.formats.light_curves import UCDS
from stampede.runtime import lazy_arrow_compute as pc

VERSION = {"version": "1.4", "version_1_4_or_later": True}
TYPES = {
    "string": "unicodeChar",
    "bool": "boolean",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
}


def document(detections: pa.Table) -> bytes:
    """The same table as `stampede.read.formats.light_curves.to_votable` writes."""
    file = tree.VOTableFile(version="1.4")
    resource = tree.Resource(type="results")
    file.resources.append(resource)
    resource.infos.append(tree.Info(name="QUERY_STATUS", value="OK"))
    resource.coordinate_systems.append(tree.CooSys(ID="icrs", system="ICRS", config=VERSION))
    resource.time_systems.append(
        tree.TimeSys(
            ID="tai",
            timescale="TAI",
            refposition="TOPOCENTER",
            timeorigin="MJD-origin",
            config=VERSION,
        )
    )
    table = tree.TableElement(file, name="lightcurve", nrows=detections.num_rows)
    resource.tables.append(table)
    table.fields.extend(_field(file, field) for field in detections.schema)
    table.create_arrays(detections.num_rows)
    for name, column in zip(detections.column_names, detections.columns, strict=True):
        blank = "" if pa.types.is_string(column.type) else 0
        blank = False if pa.types.is_boolean(column.type) else blank
        table.array[name] = pc.fill_null(column, blank).to_numpy()
        is_nan = pa.types.is_floating(column.type)
        table.array.mask[name] = column.is_null(nan_is_null=is_nan).to_numpy()
    out = BytesIO()
    file.to_xml(out, _debug_python_based_parser=True)
    return out.getvalue()


def _field(file: tree.VOTableFile, field: pa.Field) -> tree.Field:
    metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
    system = (
        "tai" if field.name.endswith("mjd") else "icrs" if field.name in ("ra", "dec") else None
    )
    votable_field = tree.Field(
        file,
        name=field.name,
        datatype=TYPES[str(field.type)],
        arraysize="*" if pa.types.is_string(field.type) else None,
        unit=metadata.get("unit"),
        ucd=UCDS[field.name],
        ref=system,
    )
    votable_field.description = metadata["doc"]
    return votable_field
