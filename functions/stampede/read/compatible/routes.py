"""All routes of other servers, below one path."""

from starlette.routing import Mount, Router

from stampede.read.compatible import (
    alerce,
    alerce_stamps,
    fink,
    fink_cutouts,
    fink_moving,
    herald,
    lasair,
)

ROUTES = [
    *alerce.ROUTES,
    *alerce_stamps.ROUTES,
    *fink.ROUTES,
    *fink_cutouts.ROUTES,
    *fink_moving.ROUTES,
    *lasair.ROUTES,
    *herald.ROUTES,
]
# Starlette would redirect a path with a slash too many to the host that the request names.
MOUNT = Mount("/compatible", Router(ROUTES, redirect_slashes=False))
