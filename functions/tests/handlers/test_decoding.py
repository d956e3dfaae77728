"""The file that batches are decoded from, and the secret of the image tokens."""

import resource
import signal
import time

import pytest
from pyarrow import ArrowMemoryError, ArrowNotImplementedError

from stampede.alerts.framing import Framing
from stampede.alerts.isolation import Isolation
from stampede.config.settings import Settings
from stampede.errors import Overloaded, StoreDown, Undecodable
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch, StoredBatch
from stampede.handlers import cutouts, decoding, lightcurves
from stampede.handlers.decoding import make_batch_decoder
from stampede.store.open import open_objects
from stampede.store.packs.pack import read_rows
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_decoder
from tests.support.alerts.fits_files import fits_of

FRAMED = Framing(16 << 20).take(made_alerts.confluent(made_alerts.rubin_record(1101, 1), 1101))


def test_the_file_is_deleted_with_its_decoder(tmp_path) -> None:
    schema, record = FRAMED
    decoder = make_decoder(tmp_path)
    assert decoder.decode(schema, [[record]], ["diaSourceId"]).num_rows == 1
    assert len(list(tmp_path.iterdir())) == 1
    del decoder
    assert not list(tmp_path.iterdir())


def test_a_full_spool_is_no_alerts_fault(tmp_path) -> None:
    schema, record = FRAMED
    decoder = make_decoder(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(Overloaded, match="no room"):
            decoder.decode(schema, [[record]], ["diaSourceId"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, before)
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [0]
    assert decoder.decode(schema, [[record]], ["diaSourceId"]).num_rows == 1


def test_a_file_that_somebody_removed_is_made_again(tmp_path) -> None:
    schema, record = FRAMED
    spool = tmp_path / "spool"
    spool.mkdir()
    decoder = make_decoder(spool)
    for _ in range(2):
        assert decoder.decode(schema, [[record]], ["diaSourceId"]).num_rows == 1
        (file,) = spool.iterdir()
        file.unlink()
    spool.rmdir()
    with pytest.raises(Overloaded, match="No such file"):
        decoder.decode(schema, [[record]], ["diaSourceId"])


def test_each_decoder_has_a_random_secret(tmp_path) -> None:
    secrets = {make_batch_decoder(Settings(spool=tmp_path))._secret for _ in range(3)}
    assert len(secrets) == 3
    assert {len(secret) for secret in secrets} == {12}


@pytest.mark.parametrize("isolation", Isolation)
def test_the_sum_of_what_alerts_decompress_to_is_bounded(tmp_path, isolation: Isolation) -> None:
    """Each alert is small as sent; a batch of them is stored in packs of a bounded size."""
    image = {"fileName": "zeros", "stampData": fits_of(100, 100, 32)}
    alerts = [made_alerts.ztf_alert(n, "deflate", cutoutScience=image) for n in range(1, 10)]
    messages = [*alerts[:5], b"no alert", *alerts[5:]]
    assert sum(map(len, messages)) < 100_000
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path, batch_bytes=100_000)
    noted: list[int] = []
    positions = [Position("alerts", 0, n) for n in range(10)]
    for function, table in ((cutouts, CUTOUTS), (lightcurves, DETECTIONS)):
        batch = Batch(messages, positions, isolation, noted.extend)
        stored = function.make_batch_storer(settings)(batch)
        assert [isinstance(each, Undecodable) for each in stored.outcomes] == [
            n == 5 for n in range(10)
        ]
        found = Table(open_objects(settings), table).coverage()
        assert found.intervals("alerts", 0) == [(0, 5), (6, 10)]
    assert set(noted) == (set() if isolation is Isolation.FAST else set(range(10)))
    objects, ids = open_objects(settings), []
    for info in objects.list("packs/"):
        rows, _ = read_rows(objects.get(info.key), info.key)
        ids += rows["alert_id"].unique().to_pylist()
        assert rows["fits"].nbytes < 100_000 + 45_000
    assert sorted(ids) == list(range(1, 10))


def test_a_slow_batch_is_answered_for_what_is_stored(tmp_path) -> None:
    image = {"fileName": "zeros", "stampData": fits_of(100, 100, 32)}
    messages = [made_alerts.ztf_alert(n, "deflate", cutoutScience=image) for n in range(1, 10)]
    settings = Settings(
        store=f"file://{tmp_path}/store", spool=tmp_path, batch_bytes=100_000, flush_seconds=1e-6
    )
    batch = Batch(messages, [Position("alerts", 0, n) for n in range(9)])
    stored = cutouts.make_batch_storer(settings)(batch)
    refused = [isinstance(each, Overloaded) for each in stored.outcomes]
    first = refused.index(True)
    assert refused == [n >= first for n in range(9)]
    covered = Table(open_objects(settings), CUTOUTS).coverage()
    assert covered.intervals("alerts", 0) == [(0, first)]


@pytest.mark.parametrize("function", [cutouts, lightcurves])
def test_an_error_behind_the_decoder_is_the_alerts_that_causes_it(
    tmp_path, monkeypatch, function
) -> None:
    """And one of the store is nobody's."""
    messages = [made_alerts.ztf_alert(candid) for candid in range(1, 31)]
    batch = Batch(messages, [Position("alerts@0", 0, n) for n in range(30)])
    bad, raised = {4, 5, 30}, ArrowNotImplementedError("no such type")

    def poisoned(write):
        def writing(given, *rest, **options):
            column = {"write_raw": "candid", "write_pack": "alert_id"}[write.__name__]
            rows = given.table if write.__name__ == "write_raw" else given
            if bad & set(rows[column].to_pylist()):
                raise raised
            return write(given, *rest, **options)

        return writing

    name = "write_raw" if function is lightcurves else "write_pack"
    monkeypatch.setattr(function, name, poisoned(getattr(function, name)))
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path)
    store = function.make_batch_storer(settings)
    outcomes = store(batch).outcomes
    assert [n for n, outcome in enumerate(outcomes, 1) if outcome] == sorted(bad)
    assert {outcome.status for outcome in outcomes if outcome} == {422}
    assert "no such type" in outcomes[3].message
    table = Table(open_objects(settings), CUTOUTS if function is cutouts else DETECTIONS)
    assert table.coverage().intervals("alerts@0", 0) == [(0, 3), (5, 29)]

    for raised in (StoreDown("away"), OSError("no space left"), ArrowMemoryError("no memory")):
        with pytest.raises(type(raised)):
            store(batch)


def test_the_search_for_bad_alerts_ends_before_the_worker_is_killed() -> None:
    """What it does not come to is sent again: what is stored by then is answered for."""

    def store(batch: Batch) -> StoredBatch:
        time.sleep(0.1)
        if len(batch.messages) > 1:
            raise ValueError("one of them")
        return StoredBatch([None], {}, 1)

    batch = Batch([b"alert"] * 64, [None] * 64)
    begin = time.monotonic()
    outcomes = decoding.blaming(store, Settings(flush_seconds=3))(batch).outcomes
    assert time.monotonic() - begin < 3
    kinds = [type(outcome) for outcome in outcomes]
    first = kinds.index(Overloaded)
    assert 0 < first < 64
    assert kinds == [type(None)] * first + [Overloaded] * (64 - first)
