"""A client that accepts none of the formats is told which there are."""

import pytest

from stampede.read.openapi import describe
from tests.read.test_app import EXAMPLES
from tests.support.read.read_service import ZTF_ALERT, ZTF_OBJECT, Reader

BODIES = {"/v1/lightcurves": ZTF_OBJECT.encode(), "/v1/cone": b"10,-5"}
BY_ACCEPT = [
    (method, path)
    for path, item in describe()["paths"].items()
    for method, operation in item.items()
    if "responseformat" in {each["name"] for each in operation["parameters"]}
]


def ask(read: Reader, method: str, path: str, accept: str, more: str = ""):
    url = EXAMPLES.get(f"{method} {path}", EXAMPLES[path])
    if more:
        url += ("&" if "?" in url else "?") + more
    body = BODIES.get(path, str(ZTF_ALERT).encode()) if method == "post" else None
    return read(url, method.upper(), body, headers={"Accept": accept})


def test_these_routes_go_by_accept() -> None:
    assert len(BY_ACCEPT) == 7


@pytest.mark.parametrize(("method", "path"), BY_ACCEPT)
@pytest.mark.parametrize("accept", ["image/webp", "video/*, text/html", "*/*;q=0"])
def test_no_format_that_there_is(read: Reader, method: str, path: str, accept: str) -> None:
    got = ask(read, method, path, accept)
    assert (got.status, got.headers["content-type"]) == (406, "application/problem+json")
    problem = got.json()
    assert problem["type"] == "urn:stampede:problem:not-acceptable"
    operation = describe()["paths"][path][method]
    for media_type in operation["responses"]["200"]["content"]:
        assert media_type in problem["detail"]
    (format,) = (each for each in operation["parameters"] if each["name"] == "format")
    for name in format["schema"]["enum"]:
        assert f"{name} (" in problem["detail"]
    assert problem["detail"].endswith(f": {accept!r}")


@pytest.mark.parametrize(("method", "path"), BY_ACCEPT)
def test_each_format_that_there_is(read: Reader, method: str, path: str) -> None:
    operation = describe()["paths"][path][method]
    for media_type in operation["responses"]["200"]["content"]:
        got = ask(read, method, path, f"{media_type};q=0.5, image/webp")
        assert got.status == 200
        assert got.headers["content-type"].partition(";")[0] == media_type
    (format,) = (each for each in operation["parameters"] if each["name"] == "format")
    for name in format["schema"]["enum"]:
        assert ask(read, method, path, "image/webp", f"format={name}").status == 200
    assert ask(read, method, path, "").status == 200


@pytest.mark.parametrize(("method", "path"), [each for each in BY_ACCEPT if each[0] == "post"])
def test_the_option_json_of_curl_asks_for_no_format(read: Reader, method: str, path: str) -> None:
    got = ask(read, method, path, "application/json")
    first = next(iter(describe()["paths"][path][method]["responses"]["200"]["content"]))
    assert (got.status, got.headers["content-type"].partition(";")[0]) == (200, first)
