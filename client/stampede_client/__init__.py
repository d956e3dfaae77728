"""Reads a Stampede server from Python: cutouts and light curves as astropy objects.

``connect`` and ``connect_async`` give a client with the same methods, ``local`` one of the
`stampede up` that runs here; ``detections`` and ``images`` read a bucket without the server. Every
error is a `StampedeClientError` whose message says what to do.
"""

from stampede_client.async_client import AsyncClient, connect_async
from stampede_client.client import Client, connect
from stampede_client.cutouts import Cutouts
from stampede_client.downloads import Fetched
from stampede_client.errors import (
    AccessDenied,
    BadInput,
    Damaged,
    Gone,
    Incomplete,
    IncompleteWarning,
    MissingWarning,
    NotFound,
    StampedeClientError,
    Unavailable,
    UnexpectedResponse,
)
from stampede_client.image_planes import Images, images
from stampede_client.light_curve import LightCurve
from stampede_client.local import LocalBucket, LocalClient, local
from stampede_client.store import Detections, detections

__version__ = "0.1.0"
__all__ = [
    "AccessDenied",
    "AsyncClient",
    "BadInput",
    "Client",
    "Cutouts",
    "Damaged",
    "Detections",
    "Fetched",
    "Gone",
    "Images",
    "Incomplete",
    "IncompleteWarning",
    "LightCurve",
    "LocalBucket",
    "LocalClient",
    "MissingWarning",
    "NotFound",
    "StampedeClientError",
    "Unavailable",
    "UnexpectedResponse",
    "connect",
    "connect_async",
    "detections",
    "images",
    "local",
]
