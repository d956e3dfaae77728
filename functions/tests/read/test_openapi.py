"""What the description allows, the server takes: no value of a parameter's schema is a 400."""

import json
import re
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stampede.alerts.bounds import MOST_ID
from stampede.read.openapi import describe
from tests.read.test_app import EXAMPLES
from tests.support.read.read_service import ZTF_ALERT, ZTF_OBJECT, Reader

TOGETHER = {
    # A schema of a parameter cannot say that another one is needed.
    ("/objects/{object_id}", "epoch"): {"period": "1"},
    ("/v1/objects/{object_id}/cutouts", "size"): {"format": "apng"},
    ("/cone", "ra"): {"dec": "1"},
    ("/cone", "dec"): {"ra": "1"},
    ("/cone", "radius"): {"ra": "1", "dec": "1"},
}
BY_DATA = {
    # Whether such a value is right depends on what is stored.
    ("/v1/alerts/{alert_id}", "fields"): "no field",
    ("/v1/alerts/{alert_id}/cutouts/{kind}", "hdu"): "",
    ("/find", "id"): "",
    ("/v1/lightcurves", "asof"): "not an alert id",
}
BODIES = {"/v1/lightcurves": ZTF_OBJECT.encode(), "/v1/cone": b"10,-5"}
NEEDED = {"ra": "10", "dec": "-5", "RA": "10", "DEC": "-5", "SR": "0.1", "radius": "1", "id": "Z"}


def values(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Values of a schema, as a client writes them."""
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "pattern" in schema:
        return st.from_regex(re.compile(schema["pattern"], re.ASCII), fullmatch=True).filter(
            lambda text: "\n" not in text and "\0" not in text
        )
    if schema.get("format") == "date":
        return st.dates().map(str)
    if schema["type"] == "array":
        return st.lists(values(schema["items"]), min_size=1).map(",".join)
    low, high = schema.get("minimum"), schema.get("maximum")
    if schema["type"] == "number":
        numbers = st.floats(low, high, allow_nan=False, allow_infinity=False)
        return st.one_of(numbers, st.sampled_from([n for n in (low, high) if n is not None])).map(
            repr
        )
    kinds = {
        "integer": st.integers(low, high).map(str),
        "boolean": st.sampled_from(["true", "false"]),
        "string": st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1),
    }
    return kinds[schema["type"]]


PARAMETERS = [
    (method, path, each)
    for path, item in describe()["paths"].items()
    for method, operation in item.items()
    for each in operation["parameters"]
    if path != "/static/{file}" and not path.startswith("/tap/")  # a query decides what fits
]


@pytest.mark.parametrize(
    ("method", "path", "parameter"),
    PARAMETERS,
    ids=[f"{method} {path} {each['name']}" for method, path, each in PARAMETERS],
)
def test_each_value_of_a_schema_is_taken(
    read: Reader, method: str, path: str, parameter: dict[str, Any]
) -> None:
    name = parameter["name"]
    others = TOGETHER.get((path, name), {})
    query = {
        each["name"]: NEEDED[each["name"]]
        for verb, other, each in PARAMETERS
        if (verb, other) == (method, path) and each["in"] == "query" and each.get("required")
    }
    example = EXAMPLES.get(f"{method} {path}", EXAMPLES.get(path, path)).partition("?")[0]
    body = BODIES.get(path, str(ZTF_ALERT).encode()) if method == "post" else None

    @settings(
        max_examples=settings.default.max_examples // 3,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )
    @given(values(parameter["schema"]))
    def check(value: str) -> None:
        where, asked = example, {**query, **others}
        if parameter["in"] == "query":
            asked[name] = value
        else:
            parts = zip(path.split("/"), example.split("/"), strict=True)
            where = "/".join(
                quote(value, safe="") if part == f"{{{name}}}" else given for part, given in parts
            )
        got = read(f"{where}?{urlencode(asked)}", method.upper(), body)
        if (path, name) in BY_DATA and got.status == 400:
            assert BY_DATA[path, name].encode() in got.data
        else:
            assert got.status != 400, (where, asked, got.data[:300])
            assert got.status < 500 or got.status == 502, (where, asked, got.data[:300])

    check()


def test_ids_in_bodies_are_described() -> None:
    paths = describe()["paths"]
    for path, good in (("/v1/cutouts", str(MOST_ID)), ("/v1/lightcurves", ZTF_OBJECT)):
        content = paths[path]["post"]["requestBody"]["content"]["application/json"]
        pattern = content["schema"]["properties"]["ids"]["items"]["pattern"]
        assert re.search(pattern, good)
        assert not re.search(pattern, "a/b")
        assert all(re.search(pattern, each) for each in content["example"]["ids"])


def test_the_pattern_of_an_alert_id_ends_where_ids_end() -> None:
    parameter = describe()["paths"]["/v1/alerts/{alert_id}"]["get"]["parameters"][0]
    pattern = re.compile(parameter["schema"]["pattern"])
    for good in (1, 9, 10, MOST_ID - 1, MOST_ID, ZTF_ALERT):
        assert pattern.search(str(good)), good
    for wrong in ("0", "01", str(MOST_ID + 1), "10" + "0" * 18, "-1", "1.0", ""):
        assert not pattern.search(wrong), wrong


def test_the_document_is_json() -> None:
    assert json.loads(json.dumps(describe(), allow_nan=False)) == describe()
