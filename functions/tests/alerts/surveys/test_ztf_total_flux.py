"""ZTF's total flux: the source of the reference image and the difference."""

import math
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.alerts.oracle_comparison import assert_as_the_oracle

POSITIVE = {"t": 1, "1": 1, "f": -1, "0": -1}
NEAREST = {"distnr": 0.25, "magnr": 17.5, "sigmagnr": 0.0625}
NONE = (None, -999.0, -99999.0, math.nan, math.inf, -math.inf)
MAGNITUDES = st.floats(10, 25, width=32)
ZERO = 10 ** (31.4 / 2.5)  # nJy of magnitude 0
SIGMAS = st.floats(0, 0.5, width=32)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> BatchDecoder:
    return make_batch_decoder(tmp_path_factory.mktemp("spool"))


def expected(row: dict) -> tuple[float | None, float | None]:
    """Total flux and its error by the formula of ZTF's notebook, which is one of magnitudes."""
    distance, nearest, sigma = (row[name] for name in NEAREST)
    if distance is None or not 0 <= distance < 1.4 or nearest in NONE or not nearest > 0:
        return None, None
    reference, difference = 10 ** (-0.4 * nearest), 10 ** (-0.4 * row["magpsf"])
    u = reference + POSITIVE[row["isdiffpos"]] * difference
    if sigma in NONE or sigma < 0:
        return u * ZERO, None
    error = math.sqrt((reference * sigma) ** 2 + (difference * row["sigmapsf"]) ** 2)
    return u * ZERO, error * ZERO * math.log(10) / 2.5  # dc_sigmag is error / u


def detected(**changes) -> dict:
    return made_alerts.ztf_record()["candidate"] | NEAREST | changes


def points(decoder: BatchDecoder, history: Iterable[dict]) -> list[dict]:
    """The points of an alert with this history, without its own, by id."""
    rows = [{"candid": number} | row for number, row in enumerate(history, 1)]
    found = decoder.detections([made_alerts.ztf_alert(prv_candidates=rows)])
    assert found.faults == [None]
    return found.rows.to_pylist()[1:]


def totals(row: dict) -> tuple[float | None, float | None]:
    return row["total_flux"], row["total_flux_err"]


def assert_close(found: tuple, row: dict) -> None:
    for value, want in zip(found, expected(row), strict=True):
        assert (value is None) == (want is None), (found, row)
        if want is not None:
            size = 10 ** (-0.4 * min(row["magnr"], row["magpsf"])) * ZERO
            assert value == pytest.approx(want, rel=2e-7, abs=1e-13 * size), row


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "magpsf": MAGNITUDES,
                "sigmapsf": SIGMAS,
                "isdiffpos": st.sampled_from([*POSITIVE]),
                "distnr": st.floats(0, 3, width=32) | st.sampled_from(NONE),
                "magnr": MAGNITUDES | st.sampled_from((*NONE, 0.0, -1.0)),
                "sigmagnr": SIGMAS | st.sampled_from(NONE),
            }
        ),
        min_size=1,
        max_size=12,
    )
)
def test_as_the_formula_of_the_survey(decoder, rows: list[dict]) -> None:
    found = points(decoder, [detected() | row for row in rows])
    for point, row in zip(found, rows, strict=True):
        assert_close(totals(point), row)


def test_a_worked_example(decoder) -> None:
    """17.5 mag and a difference of 18 mag: 363.078 and 229.087 uJy."""
    for sign, total in (("t", 592_165), ("f", 133_991)):
        [point] = points(decoder, [detected(isdiffpos=sign)])
        error = math.hypot(363_078 * 0.0625, 229_087 * 0.1) * 0.921034
        assert totals(point) == pytest.approx((total, error), rel=1e-5)


@pytest.mark.parametrize("distance", [*NONE, 1.4000001, 1.5, 29.0])
def test_nothing_where_the_reference_has_no_source(decoder, distance) -> None:
    [point] = points(decoder, [detected(distnr=distance)])
    assert totals(point) == (None, None)
    assert point["flux"] == pytest.approx(229_087, rel=1e-5)


@pytest.mark.parametrize("magnitude", [*NONE, 0.0, -1.0])
def test_nothing_where_the_source_has_no_magnitude(decoder, magnitude) -> None:
    [point] = points(decoder, [detected(magnr=magnitude)])
    assert totals(point) == (None, None)


@pytest.mark.parametrize("sigma", NONE)
def test_no_error_where_the_source_has_none(decoder, sigma) -> None:
    [point] = points(decoder, [detected(sigmagnr=sigma)])
    assert point["total_flux"] == pytest.approx(592_165, rel=1e-5)
    assert point["total_flux_err"] is None


@pytest.mark.parametrize("magnitude", [-999.0, -3e38, math.nan, 3e38])
def test_values_that_no_star_has_give_no_infinity(decoder, magnitude) -> None:
    for changes in ({"magpsf": magnitude}, {"magnr": magnitude}, {"sigmagnr": magnitude}):
        [point] = points(decoder, [detected(**changes)])
        assert all(value is None or math.isfinite(value) for value in totals(point)), changes


def test_a_source_that_faded_has_less_than_nothing(decoder) -> None:
    """Noise, or a source that moves: the difference is more than the reference. It is no null."""
    [point] = points(decoder, [detected(isdiffpos="f", magpsf=17.0)])
    assert point["total_flux"] == pytest.approx(363_078 - 575_440, rel=1e-4)


def test_a_limit_has_none(decoder) -> None:
    [point] = points(decoder, [detected(candid=None, pid=7)])
    assert point["limit"]
    assert totals(point) == (None, None)


def test_a_schema_without_these_fields_has_none(decoder) -> None:
    schema = made_alerts.ztf_schema()
    [candidate] = [each["type"] for each in schema["fields"] if each["name"] == "candidate"]
    candidate["fields"] = [each for each in candidate["fields"] if each["name"] not in NEAREST]
    found = decoder.detections([made_alerts.contained([made_alerts.ztf_record()], schema)])
    assert found.faults == [None]
    assert [totals(row) for row in found.rows.to_pylist()] == [(None, None)]


def test_forced_photometry_has_one_too(decoder) -> None:
    counts = {"jd": 2459992.5, "fid": 1, "rcid": 3, "magzpsci": 26.0, "programid": 1}
    counts |= {"forcediffimflux": -100.0, "forcediffimfluxunc": 5.0}
    changes = [{}, {"distnr": 1.5}, {"magnr": -99999.0, "distnr": -99999.0, "sigmagnr": -99999.0}]
    changes += [{"forcediffimflux": -99999.0}, {"forcediffimfluxunc": -99999.0}]
    rows = [counts | NEAREST | {"pid": n} | change for n, change in enumerate(changes, 1)]
    found = decoder.detections([made_alerts.ztf_alert(fp_hists=rows)])
    assert found.faults == [None]
    count = 10 ** (0.4 * (31.4 - 26))
    nearest = 10 ** (0.4 * (31.4 - 17.5))
    total = nearest - 100 * count
    error = math.sqrt((nearest * 0.0625 / 1.0857362) ** 2 + (5 * count) ** 2)
    first, far, unknown, unmeasured, no_error = map(totals, found.rows.to_pylist()[1:])
    assert first == pytest.approx((total, error), rel=1e-6)
    assert far == unknown == unmeasured == (None, None)
    assert no_error == (first[0], None)


def without_totals(rows: pa.Table) -> pa.Table:
    """The rows as 0.1.0 stored them."""
    for name in ("total_flux", "total_flux_err"):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.nulls(len(rows), pa.float32()))
    return rows


@pytest.mark.parametrize("order", [1, -1])
def test_an_alert_of_before_that_is_sent_again_gets_it(decoder, order: int) -> None:
    history = [detected(candid=1), detected(candid=2, distnr=9.0), detected(candid=None, pid=3)]
    message = made_alerts.ztf_alert(candidate=detected(), prv_candidates=history)
    rows = decoder.detections([message]).rows
    table = Table(MemoryObjects(), DETECTIONS, threads=1)
    for number, version in enumerate([without_totals(rows), rows][::order]):
        table.append(version, Coverage.of({("alerts", 0): [number]}))
    assert table.lookup(["ZTF18aaaaaaa"]).equals(sort_unique(rows, DETECTIONS))
    assert sum(row["total_flux"] is not None for row in rows.to_pylist()) == 2


def test_hostile_values_are_what_the_oracle_finds(decoder) -> None:
    values = (None, -999.0, math.nan, math.inf, 0.0, 1.3999, 1.4, 16.0)
    history = [
        detected(candid=number, distnr=distance, magnr=nearest, sigmagnr=sigma)
        for number, (distance, nearest, sigma) in enumerate(
            ((a, b, c) for a in values for b in values for c in values), 1
        )
    ]
    forced = {"jd": 2459992.5, "fid": 1, "rcid": 3, "magzpsci": 26.0, "programid": 1}
    forced |= {"forcediffimflux": 100.0, "forcediffimfluxunc": 5.0}
    rows = [
        forced | {name: row[name] for name in NEAREST} | {"pid": row["candid"]} for row in history
    ]
    message = made_alerts.ztf_alert(prv_candidates=history, fp_hists=rows)
    assert_as_the_oracle(decoder, [message])


REAL = sorted(made_alerts.REAL.glob("ztf*/*.avro"))


@pytest.mark.real
@pytest.mark.skipif(not REAL, reason="the real alerts (../shared/data) are not here")
def test_real_alerts_have_the_total_of_their_fields(decoder) -> None:
    own = {}
    for path in REAL:
        for record in records(path.read_bytes()):
            own[record["candid"]] = record["candidate"]
    found = decoder.detections([path.read_bytes() for path in REAL]).rows
    rows = sort_unique(found, DETECTIONS).to_pylist()
    mine = {row["source_id"]: row for row in rows if not row["limit"] and not row["forced"]}
    for candid, candidate in own.items():
        assert_close(totals(mine[candid]), candidate)
    assert sum(mine[candid]["total_flux"] is not None for candid in own) == 68
    assert all(row["total_flux"] > 0 for row in mine.values() if row["total_flux"] is not None)
    forced = [row for row in rows if row["forced"] and row["total_flux"] is not None]
    assert len(forced) > 30
    assert all(row["total_flux_err"] >= row["flux_err"] for row in forced)
