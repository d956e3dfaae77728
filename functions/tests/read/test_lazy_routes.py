"""Routes whose handlers are imported with the first request for one of them."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stampede.config.settings import Settings
from stampede.read import lazy_routes
from stampede.read.app import make_app
from stampede.read.routes import ROUTES
from tests.support.read.read_service import LSST_ALERT, Reader, serving

CUTOUT = f"/v1/alerts/{LSST_ALERT}/cutouts/science"


@pytest.fixture
def app(store):
    return make_app(Settings(), store)


@pytest.fixture
def read(app) -> Iterator[Reader]:
    yield from serving(app)


def test_the_first_request_for_one_adds_all_of_them(app, read: Reader) -> None:
    assert read(CUTOUT).status == 200
    assert app.routes == ROUTES
    assert read("/nights").status == 200
    assert app.routes == [*ROUTES, *lazy_routes.ROUTES]
    assert b'route="nights_page"' in read("/metrics").data
    for path, status in (("/", 200), (CUTOUT, 200), ("/v1/ledger", 200), ("/no-such", 404)):
        assert read(path).status == status
    assert len(app.routes) == len(ROUTES) + len(lazy_routes.ROUTES)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/no-such", 404), ("GET", "/v1/cutouts", 405), ("POST", CUTOUT, 405)],
)
def test_no_route_and_a_wrong_method(read: Reader, method: str, path: str, status: int) -> None:
    for _ in range(2):
        assert read(path, method).status == status


def test_a_wrong_method_is_told_all_that_a_path_has(read: Reader) -> None:
    """RFC 9110, 15.5.6. The description of the API knows them too."""
    paths = read("/openapi.json").json()["paths"]
    methods = {"get", "post", "delete"}
    for path, of_path in paths.items():
        got = read(re.sub(r"{.*?}", "1", path), "PUT")
        allowed = set(got.headers["allow"].lower().split(", ")) - {"head"}
        assert (got.status, allowed) == (405, methods & set(of_path)), path
    assert sum(len(methods & set(of_path)) > 1 for of_path in paths.values()) > 5


def test_first_requests_at_the_same_time(app, read: Reader) -> None:
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(read, 4 * ["/v1/ledger", "/nights", "/openapi.json", CUTOUT]))
    assert {response.status for response in responses} == {200}
    assert len(app.routes) == len(ROUTES) + len(lazy_routes.ROUTES)


def test_no_path_has_routes_of_both_kinds() -> None:
    """A wrong method for a path is refused without a look at the lazy routes."""
    assert not {route.path for route in ROUTES} & {route.path for route in lazy_routes.ROUTES}
