"""The fields on the page of an alert: what the schema says of them, and their values."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from stampede.alerts.surveys.rubin_schemas import rubin_schemas
from stampede.config.settings import Settings
from stampede.read.app import make_app
from tests.support.alerts import made_alerts
from tests.support.events.schema_registry import SchemaRegistryServer
from tests.support.read.html_page import html
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import store

UNSAFE = '"><script>alert(1)</script>'


@pytest.fixture
def read(settings: Settings) -> Iterator[Reader]:
    yield from serving(make_app(settings))


def documented(schema: Any, docs: dict[str, str]) -> Any:
    """The schema with documentation of the fields of these names."""

    def describe(node: dict[str, Any]) -> dict[str, Any]:
        known = isinstance(node.get("name"), str) and "fields" not in node
        return node | ({"doc": docs[node["name"]]} if known and node["name"] in docs else {})

    return json.loads(json.dumps(schema), object_hook=describe)


def ztf(schema: dict[str, Any], **measured: Any) -> bytes:
    record = made_alerts.ztf_record(1)
    record["candidate"] |= measured
    return made_alerts.contained([record], schema)


def test_a_field_shows_what_its_schema_says(settings: Settings, read: Reader) -> None:
    docs = {"jd": "Julian date [days]", "objectId": "name of the object", "rb": UNSAFE}
    store(settings, [ztf(documented(made_alerts.ztf_schema(), docs))])
    page, text = html(read("/alerts/1"))
    titles = [attributes["title"] for attributes in page.all("dt") if "title" in attributes]
    assert titles == [docs["objectId"], docs["jd"], docs["rb"]]
    assert '<dt title="Julian date [days]">jd<span class="unseen">: Julian date [days]' in text
    assert "<dt>candid</dt>" in text
    assert "<script>" not in text


def test_numbers_have_no_more_digits_than_their_types(settings: Settings, read: Reader) -> None:
    measured = {"magpsf": 18.1, "sigmapsf": math.nan, "ra": 10.1234567890123, "dec": -0.1}
    schema = made_alerts.ztf_schema()
    store(settings, [ztf(schema, **measured, jd=2460000.5, rb=1e-20, drb=math.inf)])
    _, text = html(read("/alerts/1"))
    for name, shown in {
        **{"magpsf": "18.1", "sigmapsf": "", "ra": "10.1234567890123", "dec": "-0.1"},
        **{"jd": "2460000.5", "rb": "1e-20", "drb": "", "fid": "1"},
    }.items():
        assert f"<dt>{name}</dt><dd>{shown}</dd>" in text, name


def rubin(unset: int) -> tuple[bytes, list[str]]:
    """An alert of which so many flags are false; and all its flags."""
    record = made_alerts.rubin_record(1101, 3)
    source = record["diaSource"]
    (own,) = (
        field["type"] for field in rubin_schemas()[1101]["fields"] if field["name"] == "diaSource"
    )
    flags = [field["name"] for field in own["fields"] if "boolean" in json.dumps(field["type"])]
    source |= {name: number >= unset for number, name in enumerate(flags)}
    record |= dict.fromkeys(("diaObject", "ssSource", "mpc_orbits"))
    return made_alerts.confluent(record, 1101), flags


@pytest.mark.parametrize("unset", [2, 6])
def test_many_false_flags_take_one_line(settings: Settings, read: Reader, unset: int) -> None:
    message, flags = rubin(unset)
    store(settings, [message])
    path = f"/alerts/{made_alerts.rubin_record(1101, 3)['diaSource']['diaSourceId']}"
    _, text = html(read(path))
    alone = [name for name in flags if f"<dt>{name}</dt><dd>False</dd>" in text]
    line = "<dt>false</dt><dd>" + ", ".join(f"<span>{name}</span>" for name in flags[:unset])
    assert alone == (flags[:2] if unset == 2 else [])
    assert (f"{line}</dd>" in text) == (unset == 6)
    assert text.count("<dd>True</dd>") == len(flags) - unset


@pytest.mark.parametrize("same", [True, False])
def test_a_registry_describes_what_is_built_in(settings: Settings, same: bool) -> None:
    """If its schema has the same fields: only those are what was decoded."""
    message, _ = rubin(0)
    path = f"/alerts/{made_alerts.rubin_record(1101, 3)['diaSource']['diaSourceId']}"
    store(settings, [message])
    schema = documented(rubin_schemas()[1101 if same else 1100], {"psfFlux": "flux [nJy]"})
    with SchemaRegistryServer() as registry:
        settings = settings.model_copy(update={"schema_registry": registry.url})
        for read in serving(make_app(settings)):
            assert 'title="flux [nJy]"' not in html(read(path))[1]  # it does not answer
            registry.answers["/schemas/ids/1101"] = (200, {"schema": json.dumps(schema)})
    with SchemaRegistryServer() as registry:
        registry.answers["/schemas/ids/1101"] = (200, {"schema": json.dumps(schema)})
        settings = settings.model_copy(update={"schema_registry": registry.url})
        for read in serving(make_app(settings)):
            for _ in range(2):
                assert ('title="flux [nJy]"' in html(read(path))[1]) == same
        assert registry.requested == ["/schemas/ids/1101"]
