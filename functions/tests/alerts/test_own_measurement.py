"""A ZTF alert's own measurement wins over its rounded copies in the histories of later alerts."""

import itertools

import pyarrow as pa
import pytest

from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records

CANDID = 1127495406315015005
OWN = {"candid": CANDID, "magpsf": 17.54656, "drb": 0.98, "rb": 0.6, "jd": 2458880.5}
COPY = OWN | {"magpsf": 17.54660}


def alerts() -> tuple[bytes, bytes, bytes]:
    """The alert, a later one with a fainter copy, and a later one with a brighter copy."""
    candidate = made_alerts.ztf_record()["candidate"]

    def later(number: int, magnitude: float) -> bytes:
        history = [candidate | COPY | {"magpsf": magnitude}]
        own = candidate | {"candid": number, "jd": 2458880.5 + number}
        return made_alerts.ztf_alert(number, candidate=own, prv_candidates=history)

    return (
        made_alerts.ztf_alert(CANDID, candidate=candidate | OWN),
        later(1, 17.54660),
        later(2, 17.54652),
    )


def point(rows: pa.Table) -> dict:
    (found,) = (row for row in rows.to_pylist() if row["source_id"] == CANDID)
    return found


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_the_own_measurement_wins_in_every_order(decoder, order) -> None:
    messages = alerts()
    table = Table(MemoryObjects(), DETECTIONS, threads=1)
    for number in order:
        table.append(decoder.detections([messages[number]]).rows, Coverage())
    found = point(table.lookup(["ZTF18aaaaaaa"]))
    assert found["flux"] == pytest.approx(10 ** ((31.4 - 17.54656) / 2.5), rel=1e-6)
    assert found["reliability"] == pytest.approx(0.98)


def test_rows_written_before_keep_their_score(decoder) -> None:
    """They counted as equally late; then the row with a reliability wins."""
    own, fainter, brighter = (point(decoder.detections([m]).rows) for m in alerts())
    before = own | {"processed_mjd": own["mjd"]}
    for copy in (fainter, brighter):
        assert copy["processed_mjd"] == copy["mjd"]
        for rows in ([before, copy], [copy, before]):
            (merged,) = sort_unique(
                pa.Table.from_pylist(rows, DETECTIONS.schema), DETECTIONS
            ).to_pylist()
            assert merged == before
        for rows in ([before, own], [own, before], [copy, own]):
            (merged,) = sort_unique(
                pa.Table.from_pylist(rows, DETECTIONS.schema), DETECTIONS
            ).to_pylist()
            assert merged == own


def real_pair() -> list[bytes]:
    """Real alerts of one object: a light curve that grows."""
    return [path.read_bytes() for path in sorted(made_alerts.REAL.glob("ztf-one-object/*.avro"))]


@pytest.mark.real
@pytest.mark.skipif(not made_alerts.REAL.is_dir(), reason="the real alerts are not here")
def test_each_real_alert_keeps_its_own_measurement(decoder) -> None:
    messages = real_pair()
    own = {}
    for message in messages:
        (record,) = records(message)
        own[record["candid"]] = record["candidate"]
    rows = sort_unique(decoder.detections(messages).rows, DETECTIONS).to_pylist()
    found = {row["source_id"]: row for row in rows if not row["limit"]}
    for candid, candidate in own.items():
        flux = 10 ** ((31.4 - candidate["magpsf"]) / 2.5)
        assert abs(found[candid]["flux"]) == pytest.approx(flux, rel=1e-6)
        assert found[candid]["reliability"] == pytest.approx(candidate["drb"], rel=1e-6)
