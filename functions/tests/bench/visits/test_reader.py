"""Against the real `read` on a store in memory."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.read.app import make_app
from stampede_bench.visits import reader
from stampede_bench.visits.alerts import VisitAlerts, simulate
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

PAUSE = 0.01


@pytest.fixture(scope="module")
def alerts() -> VisitAlerts:
    return VisitAlerts([*simulate(1, 5, each=2)])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path)


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    for read in serving(make_app(settings)):
        yield read.url


@pytest.mark.nightly
def test_the_times_are_those_of_the_first_answers(
    alerts: VisitAlerts, settings: Settings, url: str
) -> None:
    def store_later() -> None:
        for number in range(6):
            time.sleep(0.05)
            store(settings, [alerts.message(number)], number)

    begin = time.time()
    threading.Thread(target=store_later).start()
    found = reader.read(url, alerts, [5, 0, 4, 1], PAUSE, begin + 0.1)
    assert sorted(found) == [0, 1, 4, 5]
    for times in found.values():
        assert begin + 0.1 < times.cutout < times.light_curve < times.packet < time.time()
    assert begin + 0.3 < found[5].cutout


def test_another_message_than_the_sent_one_is_an_error(
    alerts: VisitAlerts, settings: Settings, url: str
) -> None:
    store(settings, [alerts.message(0)])
    others = VisitAlerts([*simulate(1, 7, each=2)])
    with pytest.raises(StampedeError, match=f"{alerts.ids(0).alert} is not the message"):
        reader.read(url, others, [0], PAUSE)


def test_it_loses_patience(alerts: VisitAlerts, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PATIENCE", 0.1)
    with pytest.raises(StampedeError, match=r"/cutouts/difference answers 404: .*unknown-alert"):
        reader.read(url, alerts, [0], PAUSE)


def test_an_ingress_knows_read_by_its_host_and_may_have_no_pod_yet(
    alerts: VisitAlerts, settings: Settings
) -> None:
    asked = []

    class Ingress:
        def __init__(self, read: ASGIApp) -> None:
            self._read = read

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            response = self._read
            if scope["type"] == "http":
                asked.append(dict(scope["headers"])[b"host"])
                if len(asked) == 1:
                    response = PlainTextResponse("no available server", 503)
            await response(scope, receive, send)

    app = make_app(settings)
    app.add_middleware(Ingress)
    store(settings, [alerts.message(0)])
    for service in serving(app):
        found = reader.read(service.url, alerts, [0], PAUSE, host="read.example.test")
        assert sorted(found) == [0]
        assert asked == 4 * [b"read.example.test"]
        asked.clear()
        with pytest.raises(StampedeError, match="answers 503"):
            reader.read(service.url, alerts, [0], PAUSE)
