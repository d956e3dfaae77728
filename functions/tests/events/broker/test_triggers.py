"""Triggers: which events match, and which files are refused, as in Knative Eventing."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.broker.triggers import Trigger, read_triggers

EVENT = {
    "specversion": "1.0",
    "type": "com.amazonaws.s3.ObjectCreated:Put",
    "source": "aws:s3.r.stampede",
    "id": "1",
    "subject": "packs/61000/0a.parquet",
    "time": datetime(2026, 3, 1, 2, 3, 4, tzinfo=UTC),
    "extension": "x",
}
REF = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "stampede-f"}


def document(**spec: object) -> dict:
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": "t", "labels": {"a": "b"}},
        "spec": {"broker": "default", "subscriber": {"ref": REF}, **spec},
    }


@pytest.fixture
def read(tmp_path: Path):
    def go(*documents: object) -> list[Trigger]:
        path = tmp_path / "triggers.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return read_triggers(path)

    return go


PACKS = {"prefix": {"subject": "packs/"}}
TABLES = {"prefix": {"subject": "tables/"}}
PARQUET = {"suffix": {"subject": ".parquet"}}
PUT = {"exact": {"type": EVENT["type"]}}


@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        ([], True),
        ([PUT], True),
        ([{"exact": {"type": "com.amazonaws.s3.ObjectCreated"}}], False),
        ([{"exact": {"type": EVENT["type"].lower()}}], False),
        ([{"exact": {"type": EVENT["type"], "extension": "x"}}], True),
        ([{"exact": {"type": EVENT["type"], "extension": "y"}}], False),
        ([{"exact": {"absent": "x"}}], False),
        ([{"exact": {"time": "2026-03-01T02:03:04Z"}}], True),
        ([PACKS], True),
        ([{"prefix": {"subject": "packs/61000/0a.parquet"}}], True),
        ([{"prefix": {"subject": "acks/"}}], False),
        ([TABLES], False),
        ([{"prefix": {"absent": "x"}}], False),
        ([{"prefix": {"subject": "packs/", "type": "com.amazonaws.s3."}}], True),
        ([{"prefix": {"subject": "packs/", "type": "dev.knative."}}], False),
        ([PARQUET], True),
        ([{"suffix": {"subject": ".fits"}}], False),
        ([{"suffix": {"absent": "x"}}], False),
        ([PACKS, PARQUET], True),
        ([PACKS, TABLES], False),
        ([{"all": [PACKS, PARQUET]}], True),
        ([{"all": [PACKS, TABLES]}], False),
        ([{"any": [TABLES, PACKS]}], True),
        ([{"any": [TABLES]}], False),
        ([{"not": TABLES}], True),
        ([{"not": PACKS}], False),
        ([{"not": {"exact": {"absent": "x"}}}], True),
        ([{"not": {"not": PACKS}}], True),
        ([{"any": [{"all": [PUT, TABLES]}, {"not": {"any": [TABLES]}}]}], True),
        ([{"all": [PUT, {"not": PARQUET}]}], False),
    ],
)
def test_filters(read, filters: list, matches: bool) -> None:
    (trigger,) = read(document(filters=filters))
    assert trigger.matches(EVENT) is matches


@pytest.mark.parametrize(
    ("spec", "matches"),
    [
        ({}, True),
        ({"filter": {}}, True),
        ({"filter": {"attributes": {"extension": "x"}}}, True),
        ({"filter": {"attributes": {"extension": ""}}}, True),
        ({"filter": {"attributes": {"absent": ""}}}, False),
        ({"filter": {"attributes": {"extension": "x", "id": "2"}}}, False),
        # The newer field overrides the older.
        ({"filter": {"attributes": {"extension": "y"}}, "filters": [PACKS]}, True),
        ({"filter": {"attributes": {"extension": "x"}}, "filters": [TABLES]}, False),
        ({"filter": {"attributes": {"extension": "y"}}, "filters": []}, False),
    ],
)
def test_the_older_filter(read, spec: dict, matches: bool) -> None:
    (trigger,) = read(document(**spec))
    assert trigger.matches(EVENT) is matches


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"filters": [{"cesql": "type = 'x'"}]}, "spec.filters.0.cesql: unknown field"),
        ({"filters": [{}]}, "exactly one of exact, prefix, suffix, all, any, not"),
        ({"filters": [{"exact": {"id": "1"}, "prefix": {"id": "1"}}]}, "exactly one of"),
        ({"filters": [{"exact": {}}]}, "spec.filters.0.exact"),
        ({"filters": [{"exact": {"id": ""}}]}, "spec.filters.0.exact.id"),
        ({"filters": [{"exact": {"Subject": "x"}}]}, "'Subject' is not an attribute name"),
        ({"filters": [{"exact": {"id": 1}}]}, "spec.filters.0.exact.id"),
        ({"filters": [{"all": []}]}, "spec.filters.0.all"),
        ({"filters": [{"not": {"any": [{"regex": {}}]}}]}, "any.0.regex: unknown field"),
        ({"filters": {"exact": {"id": "1"}}}, "spec.filters"),
        ({"filterz": []}, "spec.filterz: unknown field"),
        ({"delivery": {"retries": 3}}, "spec.delivery.retries: unknown field"),
        ({"delivery": {"retry": -1}}, "spec.delivery.retry"),
        ({"delivery": {"backoffPolicy": "random"}}, "spec.delivery.backoffPolicy"),
        ({"delivery": {"backoffDelay": "soon"}}, "spec.delivery.backoffDelay"),
        ({"subscriber": {}}, "a destination has a ref or a uri"),
        ({"subscriber": {"ref": REF, "url": "http://x"}}, "spec.subscriber.url: unknown field"),
        ({"broker": None}, "spec.broker"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(read, spec: dict, expected: str) -> None:
    with pytest.raises(SetupError) as caught:
        read(document(), document(**spec))
    message = caught.value.message
    assert "triggers.yaml: Trigger t: " in message
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"kind": "Broker"}, "kind"),
        ({"apiVersion": "eventing.knative.dev/v2"}, "apiVersion"),
        ({"status": {}}, "status: unknown field"),
        ({"metadata": {}}, "document 1: metadata.name"),
        ({"spec": 7}, "spec"),
    ],
)
def test_other_objects_are_refused(read, wrong: dict, expected: str) -> None:
    with pytest.raises(SetupError, match=expected):
        read(document() | wrong)


@pytest.mark.parametrize("text", ["a: [", "just text", "- a\n- b", "\x00"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(SetupError, match=str(path)):
        read_triggers(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"none\.yaml"):
        read_triggers(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("delivery", "pauses"),
    [
        ({"backoffDelay": "PT0.5S"}, [1, 2, 4]),
        ({"backoffDelay": "PT0.5S", "backoffPolicy": "linear"}, [0.5, 1, 1.5]),
        ({"backoffDelay": "PT1M", "backoffPolicy": "linear"}, [60, 120, 180]),
    ],
)
def test_pauses(read, delivery: dict, pauses: list[float]) -> None:
    (trigger,) = read(document(delivery=delivery))
    assert [trigger.spec.delivery.pause(retry) for retry in (1, 2, 3)] == pauses


@pytest.mark.parametrize(
    ("subscriber", "url"),
    [
        ({"ref": REF}, "http://here:1/"),
        ({"ref": REF, "uri": "/path"}, "http://here:1/path"),
        ({"ref": REF | {"name": "other"}}, None),
        ({"uri": "http://there/"}, "http://there/"),
    ],
)
def test_the_url_of_a_subscriber(read, subscriber: dict, url: str | None) -> None:
    (trigger,) = read(document(subscriber=subscriber))
    assert trigger.spec.subscriber.url({"stampede-f": "http://here:1"}) == url


@pytest.mark.parametrize(
    ("subject", "functions"),
    [
        ("packs/61000/0a.parquet", {"stampede-thumbnails", "stampede-replicate"}),
        ("tables/cutouts/0a.parquet", {"stampede-replicate"}),
        ("thumbnails/61000/0a.parquet", {"stampede-replicate"}),
    ],
)
def test_the_triggers_of_the_chart(subject: str, functions: set[str]) -> None:
    """The file that the chart applies."""
    triggers = read_triggers(Settings().triggers)
    event = EVENT | {"subject": subject}
    assert {t.metadata.name for t in triggers if t.matches(event)} == functions
    ping = {**event, "type": "dev.knative.sources.ping"}
    assert not [t for t in triggers if t.matches(ping)]
