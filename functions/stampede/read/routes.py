"""The routes of single items, which most requests are for, and of health and metrics.

Their handlers are imported at the start, those of `lazy_routes` with the first request for one.
"""

from starlette.routing import Route

from stampede.read.api import alerts, cutouts, health, lightcurves, packets, thumbnails
from stampede.read.route import LIGHT_CURVE, route
from stampede.telemetry import metrics_endpoint

CUTOUT = (
    *("format", "hdus", "hdu", "stretch", "limits", "min", "max", "vmin", "vmax", "size"),
    *("orient", "survey"),
)
ROUTES = [  # the first that matches; most requests are for cutouts
    route("/v1/alerts/{alert_id}/cutouts/{kind}", "cutouts", cutouts.get_cutout, *CUTOUT),
    route("/v1/alerts", "cutouts", alerts.get_latest, "limit"),
    route("/v1/alerts/{alert_id}", "cutouts", alerts.get_alert, "survey", "fields"),
    route("/v1/alerts/{alert_id}/packet", "cutouts", packets.get_packet, "survey", "format"),
    route("/v1/alerts/{alert_id}/schema", "cutouts", packets.get_schema, "survey"),
    route("/v1/alerts/{alert_id}/thumbnail", "cutouts", thumbnails.get_thumbnail, "survey"),
    route(
        "/v1/objects/{object_id}/lightcurve",
        "lightcurves",
        lightcurves.get_light_curve,
        *LIGHT_CURVE,
        "asof",
    ),
    Route("/metrics", metrics_endpoint.endpoint),
    Route("/health/liveness", health.liveness),
    Route("/health/readiness", health.readiness),
]
