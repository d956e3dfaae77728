from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.store.conformance import CHECKS
from stampede.store.objects.memory import MemoryObjects
from stampede_bench.figures import Context
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.storage import stress
from tests.support.store.two_sites import environment
from tests.support.store.watched_objects import Changed


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_memory_store_passes_the_checks_of_an_endpoint(check) -> None:
    check(MemoryObjects(), "a/")


def test_a_faulty_endpoint_fails_the_checks() -> None:
    context = Context(True, Path(), lambda _: None)
    one_byte_short = Changed(MemoryObjects(), read=lambda data: data[:-1])
    found = {figure.name: figure.met for figure in stress.works(context, one_byte_short, "")}
    assert not found["An object reads back as it was written, whatever its key and bytes"]
    assert not found["A ranged GET returns those bytes, and none beyond the end"]
    assert found["The etag of a PUT is the MD5 of its bytes"]


@pytest.mark.nightly
def test_stress_counts_every_request_and_leaves_nothing(
    measure, bucket: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(bucket).items():
        monkeypatch.setenv(f"STAMPEDE_{name}", value)
    monkeypatch.setattr(stress, "CLIENTS", (1, 20))
    found = measure("stress")
    assert {figure.met for (subject, _), figure in found.items() if subject == "what works"} == {
        True
    }
    many = next(subject for subject, name in found if name == "stored")
    assert found[many, "stored"].value == 60
    assert found[many, "rate of the last 20"].rival.value > 0
    shares = [figure.value for (of, name), figure in found.items() if name.startswith("took")]
    assert sum(shares) == pytest.approx(100)
    for at_once in ("1", "20"):
        for what in ("PUT", "GET"):
            subject = f"{what} of 15,000 bytes, {at_once} at once"
            assert found[subject, "failed"].value == 0
            assert found[subject, "p100"].value >= found[subject, "p50"].value > 0
    assert not list(open_bucket(bucket).list(""))
