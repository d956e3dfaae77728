"""The API described for machines: OpenAPI 3.1, with every column's unit and meaning."""

from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede import __version__
from stampede.alerts.columns import KINDS
from stampede.alerts.surveys import names
from stampede.images.stretch import Stretch
from stampede.images.thumbnail import SHAPE
from stampede.read import bulk
from stampede.read.cutouts import MAX_SIZE, Hdus, View
from stampede.read.formats import COLUMNS, FORMATS
from stampede.read.plot import Axis
from stampede.read.streams import __doc__ as STREAMS

ALERT, OBJECT = "1642404680815015001", "ZTF21abiuvdk"


async def get_openapi(request: Request) -> Response:
    """The description of this API."""
    return JSONResponse(describe(), headers={"Cache-Control": "no-cache"})


def describe() -> dict[str, Any]:
    """The OpenAPI document."""
    survey = _query("survey", "needed only where both surveys have an alert of this id", names())
    points = [
        _query("band", "one band or several, parted by commas", example="g,r"),
        _query("forced", "only forced photometry (true) or only the rest (false)", kind="boolean"),
        _query("start", "earliest MJD TAI", kind="number"),
        _query("end", "latest MJD TAI", kind="number"),
        _query("withdrawn", "also points that the survey has withdrawn", kind="boolean"),
    ]
    look = [
        _query("format", "fits is what the survey sent; npy the first image as an array", View),
        _query("hdus", "of FITS: all, or the first image alone as strictly valid FITS", Hdus),
        _query("stretch", "of a PNG", Stretch),
        _query("min", "percentile shown black", kind="number"),
        _query("max", "percentile shown white", kind="number"),
        _query("size", f"pixels along the longer side of a PNG, to {MAX_SIZE}", kind="integer"),
        survey,
    ]
    light_curve = [
        _query("format", "else by Accept; DALI's RESPONSEFORMAT is taken too", FORMATS),
        _query("magnitudes", "also the columns mag and mag_err", kind="boolean"),
        *points,
    ]
    rows = {"type": "array", "items": {"$ref": "#/components/schemas/Detection"}}
    alert, obj = _path("alert_id", ALERT), _path("object_id", OBJECT)
    cutout_types = ("application/fits", "image/png", "application/octet-stream")
    curve_types: dict[str, dict] = {
        format.media_type.partition(";")[0]: {} for format in FORMATS.values()
    }
    curve_types["application/json"] = {"schema": {"$ref": "#/components/schemas/LightCurve"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stampede",
            "version": __version__,
            "description": "Cutouts and light curves of every alert, by id. Ids are 64-bit and "
            "therefore strings in JSON. Errors are problem documents (RFC 9457) whose `type` is "
            "stable.",
        },
        "paths": {
            "/v1/alerts/{alert_id}": _get(
                "What is stored of an alert", [alert, survey], ["application/json"]
            ),
            "/v1/alerts/{alert_id}/cutouts/{kind}": _get(
                "One cutout image. FITS is sent gzipped, as stored, to those who accept that. "
                "It never changes: keep it",
                [alert, _path("kind", "science", KINDS), *look],
                cutout_types,
            ),
            "/v1/alerts/{alert_id}/thumbnail": _get(
                "Science, template and difference of an alert side by side, ready-made: a picture "
                f"of {SHAPE[1]} x {SHAPE[0]} pixels, once there is one",
                [alert, survey],
                ["image/png"],
            ),
            "/v1/objects/{object_id}/lightcurve": _get(
                "The light curve of an object, in time", [obj, *light_curve], curve_types
            ),
            "/v1/cutouts": _post("Many cutouts by alert id", [], bulk.CUTOUT_WRITERS, ALERT),
            "/v1/lightcurves": _post(
                "Many light curves by object id", points, bulk.LIGHT_CURVE_WRITERS, OBJECT
            ),
            "/v1/ledger": _get(
                "The completeness ledger: per table and topic partition, the Kafka offsets that "
                "are stored, dead-lettered and missing (half-open intervals)",
                [],
                ["application/json"],
            ),
            "/objects/{object_id}": _get(
                "A page about an object", [obj, _query("axis", "of the plot", Axis)], ["text/html"]
            ),
            "/alerts/{alert_id}": _get("To the alert on that page", [alert, survey], status="302"),
            "/find": _get(
                "To the page of an object or alert", [_query("id", "either's id")], status="302"
            ),
            "/": _get("The front page", [], ["text/html"]),
            "/openapi.json": _get("This description", [], ["application/json"]),
            "/metrics": _get("Prometheus metrics", [], ["text/plain"]),
            "/health/liveness": _get("The process answers", [], ["application/json"]),
            "/health/readiness": _get("The store answers", [], ["application/json"]),
        },
        "components": {
            "schemas": {
                "LightCurve": {
                    "type": "object",
                    "properties": {
                        "object_id": {"type": ["string", "null"]},
                        "survey": {"type": ["string", "null"]},
                        "detections": rows,
                    },
                },
                "Detection": {
                    "type": "object",
                    "description": "A point of a light curve.",
                    "properties": {field.name: _column(field) for field in COLUMNS},
                },
                "Problem": {
                    "type": "object",
                    "required": ["type", "title", "status", "detail"],
                    "properties": {
                        "type": {"type": "string", "example": "urn:stampede:problem:unknown-alert"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                        "parameter": {"type": "string", "description": "which one was wrong"},
                    },
                },
            }
        },
    }


def _column(field: pa.Field) -> dict[str, Any]:
    about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kinds = {"string": "string", "int64": "string", "bool": "boolean", "int32": "integer"}
    kind = kinds.get(str(field.type), "number")
    unit = f" [{about['unit']}]" if "unit" in about else ""
    return {
        "type": [kind, "null"] if field.nullable else kind,
        "description": about.get("doc", "") + unit,
    }


def _path(name: str, example: str, choices: Any = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", **({"enum": [*map(str, choices)]} if choices else {})},
        "example": example,
    }


def _query(
    name: str, text: str, choices: Any = None, kind: str = "string", example: str | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": text,
        "schema": {"type": kind, **({"enum": [*map(str, choices)]} if choices else {})},
        **({"example": example} if example else {}),
    }


def _answers(types: Any, status: str) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found = types if isinstance(types, dict) else {media_type: {} for media_type in types}
    return {
        status: {"description": "Found", **({"content": found} if found else {})},
        "4XX": {"description": "A mistake in the question, or no such thing", "content": problem},
        "5XX": {"description": "A fault here: try again", "content": problem},
    }


def _get(text: str, parameters: list, types: Any = (), status: str = "200") -> dict[str, Any]:
    return {
        "get": {
            "summary": text,
            "parameters": parameters,
            "responses": _answers(types, status),
        }
    }


def _post(text: str, parameters: list, writers: dict, example: str) -> dict[str, Any]:
    types = [writer().media_type.partition(";")[0] for writer in writers.values()]
    ids = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    return {
        "post": {
            "summary": text,
            "description": STREAMS,
            "parameters": [_query("format", "else by Accept", writers), *parameters],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"type": "object", "properties": {"ids": ids}},
                        "example": {"ids": [example]},
                    },
                    "text/plain": {"schema": {"type": "string"}, "example": f"{example}\n"},
                },
            },
            "responses": _answers(types, "200"),
        }
    }
