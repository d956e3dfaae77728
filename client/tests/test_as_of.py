"""Light curves as the survey had told them, many in one request."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from astropy.time import Time

import stampede_client
from stampede.config.settings import Settings
from stampede.handlers import cutouts
from stampede.read.app import make_app
from stampede_client import BadInput, Client, LightCurve
from stampede_local.demo import oracle
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

MIX = Mix(lsst_share=0.5, null_cutouts=0)
MESSAGES = [alert.body for alert in Simulator(6, Fields(objects=3), MIX).alerts(30)]
HEADS = [oracle.head(message) for message in MESSAGES]
IDS = [head["alert_id"] for head in HEADS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a store with the packets of all alerts but the last."""
    folder = tmp_path_factory.mktemp("store")
    settings = Settings(store=f"file://{folder}/store", spool=folder)
    store(settings, MESSAGES[:-1])
    store(settings, MESSAGES[-1:], first=len(MESSAGES), functions=[cutouts])
    for reader in serving(make_app(settings)):
        yield reader.url


@pytest.fixture
def st(server: str) -> Iterator[Client]:
    with stampede_client.connect(server, strict=True) as client:
        yield client


def told(curves: list[LightCurve]) -> dict[int, int]:
    """Points by the alert that told them."""
    assert all(len({*curve["alert_id"]}) == 1 for curve in curves)
    return {int(curve["alert_id"][0]): len(curve) for curve in curves}


def points(message: bytes) -> set[tuple]:
    """The points in a packet that the survey has not withdrawn."""
    rows = oracle.detections(message)
    return {(row["forced"], row["limit"], row["source_id"]) for row in rows if not row["withdrawn"]}


def test_with_each_alert(st: Client) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = told([*st.lightcurves(IDS[:-1], asof="alert")])
    assert found == {id: len(points(sent)) for id, sent in zip(IDS, MESSAGES[:-1], strict=False)}
    one = st.lightcurve(HEADS[0]["object_id"], asof=IDS[0])
    assert len(one) == found[IDS[0]]


@pytest.mark.filterwarnings("ignore::stampede_client.MissingWarning")  # those seen later
def test_until_a_time(st: Client) -> None:
    heads = sorted(HEADS[:-1], key=lambda head: float(head["mjd"]))
    middle = heads[len(heads) // 2]["mjd"] + 1e-6  # the last bits of the oracle's may differ
    latest = {head["object_id"]: head["alert_id"] for head in heads if head["mjd"] <= middle}
    names = {head["object_id"] for head in heads if head["object_id"] != HEADS[-1]["object_id"]}
    wanted = {alert_id for name, alert_id in latest.items() if name in names}
    assert len(wanted) > 1
    for asof in (middle, np.float64(middle), Time(middle, format="mjd", scale="tai")):
        assert told([*st.lightcurves(names, asof=asof)]).keys() == wanted


def test_what_no_packet_tells_is_named(server: str, st: Client) -> None:
    with pytest.raises(stampede_client.Incomplete, match=f"is kept; unreadable: {IDS[-1]}"):
        [*st.lightcurves(IDS, asof="alert")]
    with stampede_client.connect(server) as lenient:
        with pytest.warns(stampede_client.IncompleteWarning, match=f"unreadable: {IDS[-1]}"):
            found = told([*lenient.lightcurves(IDS, asof="alert")])
        assert found.keys() == {*IDS[:-1]}


@pytest.mark.parametrize("asof", ["yesterday", 60_000, Time([60000.0, 60001.0], format="mjd")])
def test_what_is_no_time_of_many_is_refused(st: Client, asof: object) -> None:
    with pytest.raises(BadInput, match="asof"):
        [*st.lightcurves([HEADS[0]["object_id"]], asof=asof)]


def test_objects_are_no_alerts(st: Client) -> None:
    with pytest.raises(BadInput, match="is no alert id"):
        [*st.lightcurves(["ZTF18aaaaaaa"], asof="alert")]


@pytest.mark.anyio
async def test_the_client_for_asyncio_gives_the_same(server: str, st: Client) -> None:
    async with stampede_client.connect_async(server) as other:
        found = [curve async for curve in other.lightcurves(IDS[:5], asof="alert")]
    assert told(found) == told([*st.lightcurves(IDS[:5], asof="alert")])
