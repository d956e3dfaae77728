"""The OpenAPI 3.1 description: ``openapi.yaml``, with enumerations and columns from the code."""

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
from stampede.alerts.columns import KINDS
from stampede.images.orientation import Orientation
from stampede.images.stretch import Stretch
from stampede.images.thumbnail import SHAPE
from stampede.lookup.cone_search import FOUND
from stampede.lookup.object_alerts import MOST_FRAMES
from stampede.lookup.points import NO_BAND, PointKind
from stampede.read.api.bulk import CUTOUT_WRITERS, LIGHT_CURVE_WRITERS, Writers
from stampede.read.api.cross_match import WRITERS as MATCH_WRITERS
from stampede.read.api.cutouts import MAX_SIZE, Hdus, Limits, View
from stampede.read.api.datalink import MOST_IDS
from stampede.read.api.object_cutouts import MEDIA_TYPES as OBJECT_CUTOUTS
from stampede.read.api.object_cutouts import MOST_SIZE, SIZE
from stampede.read.api.packets import MEDIA_TYPES as PACKETS
from stampede.read.api.packets import PacketFormat
from stampede.read.formats.cone_writers import writers
from stampede.read.formats.light_curves import COLUMNS, FORMATS
from stampede.read.plots.light_curve import Axis, Flux
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
    document: dict[str, Any] = _filled(skeleton, _choices() | _formats() | _limits())
    return document


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
        "bands": [*surveys.bands(), NO_BAND],
        "point_kinds": [*map(str, PointKind)],
        "cone_columns": {field.name: _column(field) for field in FOUND},
        "detection_columns": {field.name: _column(field) for field in COLUMNS},
    }


def _formats() -> dict[str, Any]:
    """The formats of each response: their names, and the member `content` of the response."""
    light_curve_content = _content(format.media_type for format in FORMATS.values())
    light_curve_content["application/json"]["schema"] = {"$ref": "#/components/schemas/LightCurve"}
    return {
        "light_curve_formats": [*FORMATS],
        "light_curve_content": light_curve_content,
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
        "thumbnail_width": SHAPE[1],
        "thumbnail_height": SHAPE[0],
        "most_frames": MOST_FRAMES,
        "most_links": MOST_IDS,
        "strip_size": SIZE,
        "most_strip_size": MOST_SIZE,
    }


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
