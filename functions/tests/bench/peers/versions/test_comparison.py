import subprocess
from collections import Counter
from pathlib import Path

import pytest

from stampede_bench.figures import Figure
from stampede_bench.peers.meter import Spent
from stampede_bench.peers.versions import comparison
from stampede_bench.peers.versions.comparison import own_figures, size_figures, spent_on
from stampede_bench.peers.versions.passes import Held, scrub_figures
from tests.support.checkouts import with_python

FUNCTIONS = Path(__file__).parents[4]


@pytest.fixture
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with this version, as if it were an earlier one."""
    path = tmp_path_factory.mktemp("earlier")
    (path / "functions").symlink_to(FUNCTIONS)
    with_python(path)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in ("init --quiet", "add functions", "commit --quiet -m x"):
        subprocess.run(["git", "-C", path, *who, *words.split()], check=True)
    return path


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_a_version_beside_itself_stores_as_much(
    measure, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "WAYS", comparison.WAYS[1:])  # the other takes a minute more
    found = measure("peers", peers=(("stampede", earlier),))
    subjects = {subject.partition(",")[0] for subject, _ in found}
    assert {
        "CPU of all processes",
        "bytes",
        "CPU of drawing thumbnails",
        "CPU of one pass of compaction",
        "objects held",
        "CPU of read and Ceph",
        "scrub",
    } <= subjects
    assert not any("gzip" in name for _, name in found)  # no other system is measured
    stored = [one.value for (what, _), one in found.items() if what.startswith("bytes, stored")]
    assert len(stored) == 4  # of two surveys
    for earlier_bytes, this in zip(stored[::2], stored[1::2], strict=True):
        assert this == pytest.approx(earlier_bytes, rel=0.1)
    for (what, _), one in found.items():
        if what.startswith(("CPU of read", "scrub")):
            assert one.rival
            assert one.value > 0 < one.rival.value


def values(figures: list[Figure]) -> dict[str, tuple[float, float]]:
    """This version's figure and the earlier one's, by name."""
    return {each.name: (each.value, each.rival.value) for each in figures if each.rival}


def test_scrub_is_for_a_gb_of_what_each_version_read() -> None:
    spent = {"old": {"scrub": 6.0, "Ceph": 2.0}, "new": {"scrub": 1.0, "Ceph": 1.0}}
    found = values([*scrub_figures(spent, {"old": 500_000_000, "new": 250_000_000})])
    assert found == {
        "new: CPU of all": (pytest.approx(8), pytest.approx(16)),
        "new: CPU of scrub": (pytest.approx(4), pytest.approx(12)),
        "new: CPU of Ceph": (pytest.approx(4), pytest.approx(4)),
        "new: read": (0.25, 0.5),
    }


def test_bytes_and_objects_are_for_alerts_of_both_surveys() -> None:
    sizes = {"as they came": [Held(1000, 4), Held(500, 2)]}
    found = [*size_figures(["old", "new"], sizes, 10)]
    assert [(each.unit, each.value, each.rival and each.rival.value) for each in found] == [
        ("bytes/alert", 50, 100),
        ("/1,000 alerts", 200, 400),
    ]


def test_the_earlier_version_is_the_rival() -> None:
    [found] = spent_on("CPU", ["old", "new"], [{"a": 1.0, "b": 1.0}, {"c": 1.0}], 100)
    assert (found.value, found.rival and found.rival.what, found.ratio) == (10, "old", 0.5)


def test_functions_that_did_something_are_shown_each() -> None:
    cpu = {"alerts": 0.2, "alerts workers": 0.1, "broker": 0.001, "radosgw": 0.5}
    found = own_figures("alerts", {"new": Spent(cpu, 1.0, Counter(), 0)}, 100)
    assert [(each.name, each.value) for each in found] == [
        ("new: alerts", pytest.approx(2)),
        ("new: alerts workers", pytest.approx(1)),
    ]
