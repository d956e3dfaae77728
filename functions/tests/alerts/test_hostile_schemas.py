"""Schemas that would take a decoder's time or memory without bound are refused at once."""

import time

import pytest

from stampede.alerts.framing import Framing
from stampede.errors import StampedeError
from tests.support.alerts import made_alerts
from tests.support.alerts.hostile_alerts import HOSTILE, with_field

BY_THE_SCHEMA = [
    *("2^60 nulls", "2^60 empty records", "2^60 empty fixed", "26,000 types", "10,000 types"),
    *("types that double", "a name that is none"),
    *("5,000 levels", "5,000 records", "a type in itself", "a schema of 2 MB", "2^40 entries"),
    *("huge fixed", "100,000 blocks", "a lone surrogate", "a field of 5,000 digits"),
]


@pytest.mark.parametrize("name", BY_THE_SCHEMA)
def test_a_hostile_schema_is_refused_before_it_is_parsed(name: str) -> None:
    message = HOSTILE[name]()
    begin = time.process_time()
    with pytest.raises(StampedeError) as caught:
        Framing(16 << 20).take(message)
    assert time.process_time() - begin < 1
    assert 400 <= caught.value.status < 500
    assert len(caught.value.message) < 1000
    caught.value.message.encode()


@pytest.mark.long
def test_strange_schemas_do_not_make_known_ones_slow() -> None:
    """CPU time of framing, in units of itself before."""
    good = made_alerts.ztf_alert()
    strange = [with_field("int", b"\2", name=f"n{number}") for number in range(1000)]
    framing = Framing(16 << 20)

    def cpu(messages: list[bytes]) -> float:
        begin = time.process_time()
        for message in messages:
            framing.take(message)
        return time.process_time() - begin

    framing.take(good)
    alternating = [good, made_alerts.contained([made_alerts.ztf_record()], other_schema())] * 500
    cpu(alternating)
    before = min(cpu(alternating) for _ in range(3))
    for message in strange:
        framing.take(message)
    after = min(cpu(alternating) for _ in range(3))
    assert after < 3 * before
    known = framing.take(good).schema
    for message in strange:
        framing.take(message)
    assert framing.take(good).schema is known


def other_schema() -> dict:
    return made_alerts.ztf_schema(forced=False)
