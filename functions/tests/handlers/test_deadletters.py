"""`stampede deadletters` with running functions: list, repair, replay, purge."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from stampede.alerts.surveys.rubin_schemas import rubin_schemas
from stampede.config.settings import Settings
from stampede.events.cloudevents.event import parse
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.events.delivery.delivery import Delivery
from stampede.events.delivery.sink import Sink
from stampede.events.kafka.source import connections
from stampede.images.fits import unpack
from stampede.store.integrity import ledger
from stampede.store.integrity.dead_letter_offsets import dead_lettered
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from tests.support.alerts import made_alerts
from tests.support.events.receiver import Received, Receiver, Reply
from tests.support.events.schema_registry import SchemaRegistryServer
from tests.support.store.located import stored_image

pytestmark = [pytest.mark.integration, pytest.mark.anyio]

UNKNOWN = 1202  # a schema id that is not built in
EVENT_HEADERS = CloudEventHeaders("default", "test", {})


def record(offset: int, value: bytes) -> Record:
    headers = [("content-type", b"avro/binary"), ("X-Night", "été 1".encode())]
    return Record("ztf-alerts", 3, offset, 1772337906789, b"key 1%", headers, value)


def unknown(seed: int) -> bytes:
    """An alert whose schema only a registry has: Rubin's newest under another number."""
    known = made_alerts.confluent(made_alerts.rubin_record(1101, seed), 1101)
    return b"\0" + UNKNOWN.to_bytes(4, "big") + known[5:]


async def deliver(records: Sequence[Record], sink: str, letters: str) -> None:
    """Deliver records as a source does."""
    stop, settings = asyncio.Event(), Settings()
    async with connections(settings) as session:
        delivery = Delivery(
            Sink("sink", sink, session, stop, 0.01),
            {"": Sink("dead letters", letters, session, stop, 0.01)},
            0,
        )
        await asyncio.gather(
            *(delivery.deliver(EVENT_HEADERS.headers(each), each) for each in records)
        )


class System:
    """Writes the file of a running `stampede up`, with the functions of a test."""

    def __init__(self, data: Path, store: str) -> None:
        self.data, self.store = data, store
        self.urls = {"cutouts": "http://127.0.0.1:1", "lightcurves": "http://127.0.0.1:1"}
        self.env: dict[str, str] = {}
        data.mkdir()

    def deadletters(self, *arguments: object, status: int = 0, typed: str = "") -> str:
        running = {"pid": os.getpid(), "urls": self.urls, "store": self.store, "access_key": ""}
        running |= {"secret_key": "", "kafka": "", "topics": ""}
        (self.data / "up.json").write_text(json.dumps(running))
        words = [*map(str, arguments), "--data", str(self.data)]
        done = subprocess.run(
            [sys.executable, "-m", "stampede", "deadletters", *words],
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            env=os.environ | self.env,
        )
        assert "Traceback" not in done.stdout, done.stdout
        assert done.returncode == status, done.stdout
        return done.stdout

    def listed(self, *arguments: object) -> list[dict]:
        return [json.loads(line) for line in self.deadletters("list", "--json", *arguments).split("\n") if line]  # fmt: skip  # noqa: E501

    def entry(self, table: str = "cutouts") -> ledger.Entry:
        entries = ledger.entries(ledger.accounts(self.objects))
        return next(entry for entry in entries if entry.table == table)

    @property
    def objects(self):
        return open_objects(Settings(store=self.store))


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path / "data", f"file://{tmp_path}/store")


@pytest.fixture
def registry() -> Iterator[str]:
    """A Confluent schema registry that knows one schema."""
    with SchemaRegistryServer() as server:
        schema = {"schema": json.dumps(rubin_schemas()[1101])}
        server.answers[f"/schemas/ids/{UNKNOWN}"] = (200, schema)
        yield server.url


async def test_refused_repaired_replayed_stored_purged(
    serve: Callable, system: System, registry: str, tmp_path: Path
) -> None:
    """The whole life of a dead letter, beside one that stays a dead letter."""
    letters, before = serve("deadletters"), serve("cutouts")
    good = [made_alerts.ztf_alert(n) for n in range(1, 4)]
    refused = [unknown(seed) for seed in range(5)]
    messages = [*good, *refused, b"no alert at all"]
    await deliver(
        [record(n, message) for n, message in enumerate(messages)],
        before.url,
        f"{letters.url}/cutouts",
    )
    assert (system.entry().stored, system.entry().dead_lettered) == (3, 6)

    shown = system.deadletters("list")
    assert "cutouts/ztf-alerts/3/4 " in shown
    assert "unknown schema id 1202" in shown
    assert "6 in all, 0 stored since" in shown
    assert len(system.listed("cutouts", "--reason", "SCHEMA ID")) == 5
    assert system.listed("detections") == []
    letter = system.deadletters("show", "cutouts/ztf-alerts/3/4", "--save", tmp_path / "alert")
    for word in (before.url, "400", '"detail"', "unknown schema id 1202", "kafkaheaderxnight"):
        assert word in letter
    assert (tmp_path / "alert").read_bytes() == refused[1]

    # The same function refuses the letter again, and stores no second one.
    system.urls["cutouts"] = before.url
    again = system.deadletters("replay", "cutouts/ztf-alerts/3/4", status=1)
    assert "refused again: cutouts/ztf-alerts/3/4: 400: " in again
    assert "unknown schema id 1202" in again
    assert len(list(system.objects.list("deadletters/"))) == len(
        {letter["object"] for letter in system.listed()}
    )
    assert system.entry().dead_lettered == 6

    system.urls["cutouts"] = serve("cutouts", SCHEMA_REGISTRY=registry).url
    done = system.deadletters("replay", "--all", status=1)
    assert "5 sent and accepted, 1 refused again, 0 stored before" in done
    shown = system.deadletters("purge")
    assert "0 dead letters removed, 6 kept" in shown
    assert "the offsets of 5 kept ones are stored, but not these alerts" in shown
    assert "unknown schema id 1202" in system.deadletters("show", "cutouts/ztf-alerts/3/4")
    system.env["STAMPEDE_SCHEMA_REGISTRY"] = registry
    assert "0 sent and accepted, 1 refused again, 5 stored before" in system.deadletters(
        "replay", "--table", "cutouts", status=1
    )
    assert "5 stored before" in system.deadletters("replay", "--reason", "schema id")
    assert "1 sent and accepted" in system.deadletters("replay", "cutouts/ztf-alerts/3/4")
    entry = system.entry()
    assert (entry.stored, entry.dead_lettered, entry.missing) == (8, 1, [])
    table, objects = Table(system.objects, CUTOUTS), system.objects
    for message in refused:
        message = made_alerts.confluent(oracle_record(message), 1101)
        for place in table.lookup([oracle.head(message)["alert_id"]]).to_pylist():
            fits = oracle.cutouts(message)[place["kind"]]
            if fits is not None:
                assert unpack(stored_image(objects, place)) == fits

    assert "5 dead letters removed, 1 kept" in system.deadletters("purge")
    assert [letter["offset"] for letter in system.listed()] == [8]
    entry = system.entry()
    assert (entry.stored, entry.dead_lettered, entry.missing) == (8, 1, [])
    assert dead_lettered(objects, "cutouts").intervals("ztf-alerts", 3) == [(8, 9)]


def oracle_record(message: bytes) -> dict:
    return oracle.read_record(message[:1] + (1101).to_bytes(4, "big") + message[5:])[1]


async def test_alerts_from_the_future_are_replayed_with_a_larger_bound(
    serve: Callable, system: System
) -> None:
    """A thousand letters of both tables: the function of each table gets its own."""
    letters = serve("deadletters")
    alerts = []
    for n in range(500):
        candidate = made_alerts.ztf_record()["candidate"] | {"candid": n + 1, "jd": 2599000.5}
        alerts.append(made_alerts.contained([made_alerts.ztf_record(n + 1, candidate=candidate)], made_alerts.ztf_schema()))  # fmt: skip  # noqa: E501
    for name, table in (("cutouts", "cutouts"), ("lightcurves", "detections")):
        refusing = serve(name)
        await deliver(
            [record(n, alert) for n, alert in enumerate(alerts)],
            refusing.url,
            f"{letters.url}/{table}",
        )
        system.urls[name] = serve(name, FUTURE_DAYS=1e6).url
    assert system.entry("cutouts").dead_lettered == 500
    assert system.entry("detections").dead_lettered == 500
    assert "1,000 sent and accepted, 0 refused again" in system.deadletters("replay", "--all")
    for table in ("cutouts", "detections"):
        entry = system.entry(table)
        assert (entry.stored, entry.dead_lettered, entry.missing_count) == (500, 0, 0)
    shown = system.deadletters("list", "--lines", 3)
    assert shown.count("cutouts/ztf-alerts/") + shown.count("detections/ztf-alerts/") == 3
    assert "… and 997 more" in shown
    assert "1,000 in all, 1,000 stored since" in shown
    assert "1,000 dead letters removed, 0 kept" in system.deadletters("purge")
    assert list(system.objects.list("deadletters/")) == []


async def test_a_topic_made_anew_hides_no_letter(serve: Callable, system: System) -> None:
    """Its offsets begin at 0 again: an alert counts as stored only if it is in the table itself."""
    letters, refusing = serve("deadletters"), serve("cutouts", FUTURE_DAYS=-1e6)
    old = [made_alerts.ztf_alert(n) for n in range(1, 9)] + [b"no alert at all"]
    new = [made_alerts.ztf_alert(n) for n in range(101, 110)]
    records = [record(n, message) for n, message in enumerate(old)]
    await deliver(records, refusing.url, f"{letters.url}/cutouts")
    function = serve("cutouts")
    system.urls["cutouts"] = function.url
    records = [record(n, message) for n, message in enumerate(new)]
    await deliver(records, function.url, f"{letters.url}/cutouts")
    assert (system.entry().stored, system.entry().missing) == (9, [])
    assert "9 in all, 0 stored since" in system.deadletters("list")
    assert "0 dead letters removed, 9 kept" in system.deadletters("purge")
    assert "8 sent and accepted, 1 refused again" in system.deadletters("replay", "--all", status=1)
    found = Table(system.objects, CUTOUTS).lookup([*range(1, 9), *range(101, 110)])
    assert len(set(found["alert_id"].to_pylist())) == 17
    assert "9 in all, 8 stored since" in system.deadletters("list")
    assert "8 dead letters removed, 1 kept" in system.deadletters("purge")
    question = system.deadletters("purge", "--undecodable", status=1, typed="n\n")
    assert "1 dead letter, 1 of them not stored" in question
    assert "show 0 of them as missing" in question
    assert "1 dead letter removed, 0 kept" in system.deadletters("purge", "--undecodable", "--yes")


async def test_a_replayed_event_is_unchanged(serve: Callable, system: System) -> None:
    """Every attribute except those of the error, and every byte."""
    bodies = [b"", b"\0\xff not an alert", bytes(3_000_000)]
    with Receiver() as first, Receiver(lambda event, times: (400, b"no", {})) as refusing:
        await deliver(
            [record(n, body) for n, body in enumerate(bodies)], first.url, "http://127.0.0.1:1"
        )
        letters = f"{serve('deadletters').url}/cutouts"
        await deliver([record(n, body) for n, body in enumerate(bodies)], refusing.url, letters)
    with Receiver() as sink:
        output = system.deadletters("replay", "--table", "cutouts", "--sink", sink.url, status=1)
        assert "3 were accepted, but are not in this store" in output
    assert events(sink) == events(first)
    assert "kafkaheaderxnight" in next(iter(events(sink).values()))[0]


def events(sink: Receiver) -> dict:
    found = {}
    for each in sink.accepted:
        headers = [(name.encode(), value.encode()) for name, value in each.headers.items()]
        event = parse(headers, each.body)
        found[event.attributes["id"]] = event.attributes, event.data
    return found


async def test_ctrl_c_while_replaying(serve: Callable, system: System) -> None:
    letters = f"{serve('deadletters').url}/cutouts"
    with Receiver(lambda event, times: (400, b"no", {})) as refusing:
        await deliver([record(n, b"alert") for n in range(400)], refusing.url, letters)
    with Receiver() as sink:
        sink.delay = 0.2
        system.deadletters("list")  # leaves up.json
        command = [sys.executable, "-m", "stampede", "deadletters", "replay", "--all"]
        command += ["--table", "cutouts", "--sink", sink.url, "--data", str(system.data)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run:
            while not sink.accepted:
                assert run.poll() is None
            run.send_signal(2)
            output, _ = run.communicate(timeout=120)
        assert run.returncode == 130, output
        assert "Traceback" not in output
        assert "stopped; run the same again" in output
        assert 0 < len(sink.accepted) < 400
        assert sink.most_at_once <= Settings().in_flight // 4
    assert len(system.listed()) == 400


async def test_a_purge_of_everything_asks_first(serve: Callable, system: System) -> None:
    letters = f"{serve('deadletters').url}/cutouts"
    with Receiver(refuse) as refusing:
        await deliver([record(n, b"alert") for n in range(10)], refusing.url, letters)
    assert "0 dead letters removed, 10 kept" in system.deadletters("purge")
    question = system.deadletters("purge", "--all", status=1, typed="n\n")
    assert "10 dead letters, 10 of them not stored" in question
    assert system.entry().dead_lettered == 10
    assert "0 dead letters removed" in system.deadletters(
        "purge", "--all", "--yes", "--table", "detections"
    )
    assert "10 dead letters removed, 0 kept" in system.deadletters("purge", "--all", "--yes")
    assert "no dead letters" in system.deadletters("list")


def refuse(event: Received, times: int) -> Reply:
    return 400, base64.b64encode(event.id.encode()), {}


def test_wrong_arguments_are_one_line(system: System) -> None:
    for arguments, output in [
        (("replay",), "give IDs, --all, --table or --reason"),
        (("replay", "--all", "--sink", "http://x"), "say which with --table"),
        (("replay", "--table", "cutouts", "--sink", "x"), "--sink is not an http(s) URL: x"),
        (("replay", "--table", "nights"), "no table 'nights': there are cutouts, detections"),
        (("show", "cutouts/a/b/c"), "not a dead letter's id: 'cutouts/a/b/c'"),
        (("show", "cutouts/alerts/0/7"), "there is no dead letter cutouts/alerts/0/7"),
        (("replay", "cutouts/alerts/0/7"), "there is no dead letter cutouts/alerts/0/7"),
        (("list", "packs"), "no table 'packs'"),
    ]:
        assert output in system.deadletters(*arguments, status=2)
