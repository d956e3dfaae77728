"""The OpenAPI 3.1 description: ``openapi.yaml``, with enumerations and columns from the code."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede import __version__
from stampede.alerts import surveys
from stampede.alerts.bounds import MOST_ID, OBJECT_ID, SURVEY_NAME
from stampede.alerts.columns import KINDS, MOVING
from stampede.alerts.moving.designations import MOST as MOST_DESIGNATION
from stampede.images.fits import MOST_VALUE
from stampede.images.orientation import Orientation
from stampede.images.stretch import Stretch
from stampede.images.thumbnail import SHAPE
from stampede.lookup.cone_search import FOUND
from stampede.lookup.object_alerts import MOST_FRAMES
from stampede.lookup.points import NO_BAND, PointKind
from stampede.read.api.bulk import CUTOUT_WRITERS, LIGHT_CURVE_WRITERS, Writers
from stampede.read.api.cross_match import WRITERS as MATCH_WRITERS
from stampede.read.api.cutouts import MAX_SIZE, MOST_HDU, Hdus, Limits, View
from stampede.read.api.datalink import MOST_IDS
from stampede.read.api.lightcurves import MJD
from stampede.read.api.object_cutouts import MEDIA_TYPES as OBJECT_CUTOUTS
from stampede.read.api.object_cutouts import MOST_SIZE, SIZE
from stampede.read.api.packets import MEDIA_TYPES as PACKETS
from stampede.read.api.packets import PacketFormat
from stampede.read.api.proofs import LATEST_NIGHT
from stampede.read.formats.cone_writers import writers
from stampede.read.formats.light_curves import COLUMNS, FORMATS, MAGNITUDES
from stampede.read.plots.light_curve import Axis, Flux
from stampede.read.plots.value_range import Fit
from stampede.read.web import parameters
from stampede.read.web.static_files import address

CONE_WRITERS = writers({})


async def get_openapi(request: Request) -> Response:
    """The description of this API."""
    return JSONResponse(describe(), headers={"Cache-Control": "no-cache"})


@cache
def describe() -> dict[str, Any]:
    """The OpenAPI document."""
    import yaml  # no other route needs it

    skeleton = yaml.safe_load(Path(__file__).with_name("openapi.yaml").read_text())
    del skeleton["x-shared"]
    values = _choices() | _formats() | _limits() | _patterns()
    document: dict[str, Any] = _filled(skeleton, values)
    _add_response_formats(document)
    return document


def _add_response_formats(document: dict[str, Any]) -> None:
    """Say of each parameter `responseformat` which formats it takes: names, and media types."""
    for item in document["paths"].values():
        for operation in item.values():
            named = {each["name"]: each for each in operation["parameters"]}
            if "responseformat" in named:
                known = [
                    *named["format"]["schema"]["enum"],
                    *operation["responses"]["200"]["content"],
                ]
                schema = {"type": "string", "enum": known}
                parameters = operation["parameters"]
                index = parameters.index(named["responseformat"])
                parameters[index] = {**named["responseformat"], "schema": schema}


def _choices() -> dict[str, Any]:
    """The values that parameters and members of responses have."""
    return {
        "surveys": [*surveys.names()],
        "kinds": [*KINDS],
        "views": [*map(str, View)],
        "hdus": [*map(str, Hdus)],
        "stretches": [*map(str, Stretch)],
        "limits": [*map(str, Limits)],
        "orientations": [*map(str, Orientation)],
        "axes": [*map(str, Axis)],
        "fluxes": [*map(str, Flux)],
        "fits": [*map(str, Fit)],
        "bands": [*surveys.bands(), NO_BAND],
        "point_kinds": [*map(str, PointKind)],
        "cone_columns": {field.name: _column(field) for field in FOUND},
        "detection_columns": {field.name: _column(field) for field in COLUMNS},
        "observation_columns": {
            field.name: _column(field)
            for field in (*MOVING, *MAGNITUDES)
            if field.name != "designation"  # which all share
        },
    }


def _formats() -> dict[str, Any]:
    """The formats of each response: their names, and the member `content` of the response."""
    return {
        "light_curve_formats": [*FORMATS],
        "light_curve_content": _rows("LightCurve"),
        "observations_content": _rows("Observations"),
        "packet_formats": [*map(str, PacketFormat)],
        "packet_content": _content(PACKETS.values()),
        "object_cutouts_formats": [*OBJECT_CUTOUTS],
        "object_cutouts_content": _content(OBJECT_CUTOUTS.values()),
        "many_cutouts_formats": [*CUTOUT_WRITERS],
        "many_cutouts_content": _written(CUTOUT_WRITERS),
        "many_light_curves_formats": [*LIGHT_CURVE_WRITERS],
        "many_light_curves_content": _written(LIGHT_CURVE_WRITERS),
        "cone_formats": [*CONE_WRITERS],
        "cone_content": _written(CONE_WRITERS)
        | {"application/json": {"schema": {"$ref": "#/components/schemas/Cone"}}},
        "match_formats": [*MATCH_WRITERS],
        "match_content": _written(MATCH_WRITERS),
    }


def _limits() -> dict[str, Any]:
    """Sizes and other bounds, and names that change with each version."""
    return {
        "version": __version__,
        "script": address("object.js").removeprefix("/static/"),
        "max_size": MAX_SIZE,
        "most_hdu": MOST_HDU,
        "least_value": -MOST_VALUE,
        "most_value": MOST_VALUE,
        "most_mjd": MJD[1],
        "most_id": MOST_ID,
        "latest_night": LATEST_NIGHT - 1,
        "thumbnail_width": SHAPE[1],
        "thumbnail_height": SHAPE[0],
        "most_frames": MOST_FRAMES,
        "most_links": MOST_IDS,
        "strip_size": SIZE,
        "most_strip_size": MOST_SIZE,
    }


def _patterns() -> dict[str, str]:
    """What ids and positions look like: regular expressions of ECMA 262."""
    minutes = r"[0-5]?[0-9]"
    rest = rf"[:m]{minutes}(\.[0-9]{{1,9}})?s?$"
    bands = "|".join(map(re.escape, surveys.bands()))
    return {
        "alert_id_pattern": f"^(LSST-AP-DS-)?({_up_to(MOST_ID)})$",
        "object_id_pattern": f"^(?!{parameters.FLOAT.pattern}$){OBJECT_ID.pattern}$",
        "survey_pattern": f"^{SURVEY_NAME.pattern}$",
        "designation_pattern": rf"^[!-~]([ -~]{{0,{MOST_DESIGNATION - 2}}}[!-~])?$",
        "bands_pattern": f"^({bands})(,({bands}))*$",
        "hours_pattern": f"^([01]?[0-9]|2[0-3])[:h]{minutes}{rest}",
        "degrees_pattern": f"^[+-]?[0-8]?[0-9][:d]{minutes}{rest}",
        "radius_pattern": r"^[0-9]{1,2}(\.[0-9]{1,9})?(arcsec|arcmin|deg)$",
    }


def _up_to(most: int) -> str:
    """A regular expression of the integers from 1 to `most`, without leading zeros."""
    digits = str(most)
    shorter = f"[1-9][0-9]{{0,{len(digits) - 2}}}"
    equal = (
        f"{digits[:at]}[{int(at == 0)}-{int(digit) - 1}][0-9]{{{len(digits) - at - 1}}}"
        for at, digit in enumerate(digits)
        if int(digit) > int(at == 0)
    )
    return "|".join((shorter, *equal, digits))


def _filled(node: Any, values: dict[str, Any]) -> Any:
    """The document with each ``${name}`` replaced. Raises `KeyError` if a name has no value."""
    if isinstance(node, dict):
        return {key: _filled(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(item, values) for item in node]
    if not isinstance(node, str):
        return node
    if node.startswith("${") and node.endswith("}"):
        return values[node[2:-1]]
    return Template(node).substitute(values)


def _written(writers: Writers) -> dict[str, dict[str, Any]]:
    return _content(writer().media_type for writer in writers.values())


def _rows(schema: str) -> dict[str, dict[str, Any]]:
    """The member `content` of a response in any of `FORMATS`, with the schema of its JSON."""
    content = _content(format.media_type for format in FORMATS.values())
    return content | {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _content(media_types: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The member `content` of a response."""
    return {media_type.partition(";")[0]: {} for media_type in media_types}


def _column(field: pa.Field) -> dict[str, Any]:
    """The JSON schema of a column."""
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kinds = {"string": "string", "int64": "string", "bool": "boolean", "int32": "integer"}
    kind = kinds.get(str(field.type), "number")
    unit = f" [{metadata['unit']}]" if "unit" in metadata else ""
    return {
        "type": [kind, "null"] if field.nullable else kind,
        "description": metadata.get("doc", "") + unit,
    }
