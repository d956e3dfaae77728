"""`tools/capacity.py`: from the cost of a million alerts to a page on cores, pods, disks."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stampede_bench.ingestion.cost import ARRIVE, COMPACT, KINDS, PARTS

TOOL = Path(__file__).parents[2] / "tools" / "capacity.py"


@pytest.fixture
def tool() -> dict:
    return runpy.run_path(str(TOOL))


@pytest.fixture
def figures() -> dict[str, float]:
    """Each part takes 1 ms of CPU of an alert and 100 MB, and nothing to be compacted."""
    found = {"merged for the first time": 5.0, "all": 10.0, "left of it, without what repeats": 1.0}
    found |= {"stored": 40.0, "sent": 170.0}
    for part in PARTS:
        found |= {f"memory of {part}": 100.0, f"CPU of {part} {COMPACT}": 0.0}
        found[f"CPU of {part} {ARRIVE}"] = 1000.0
    for phase in (ARRIVE, COMPACT):
        found |= {f"{kind} {phase}": 10_000.0 for kind in KINDS} | {f"written {phase}": 50.0}
    return found


def test_the_page_beside_the_figures_is_computed_from_them(tool) -> None:
    kept = json.loads(tool["FIGURES"].read_text())
    assert len(kept["figures"]) == len(kept["scrub"]["figures"]) == 3
    nights = [name for name in kept["merging"]["figures"] if tool["OF_NIGHT"] in name]
    assert len(kept["merging"]["figures"]) - len(nights) == 3
    assert len(nights) == 2 * 5  # two surveys: three kinds of pack, raw alerts, and all objects
    assert tool["PAGE"].read_text() == tool["page"](kept), "run tools/capacity.py"


def test_pods_are_so_many_that_no_process_is_too_busy(tool, figures) -> None:
    slow, fast = (tool["column"](figures, rate, 0.0) for rate in (300, 3000))
    assert slow["`cutouts`: pods; cores"] == "1; 0.6"  # two processes, each busy 0.3 of the time
    assert fast["`cutouts`: pods; cores"] == "5; 6"  # 3 cores of workers, at 0.7
    assert fast["source: pods; cores"] == "5; 3"
    assert slow["Ceph: cores"] == "0.3"
    assert fast["**Stampede: pods; cores**"] == f"**{7 * 5}; {9 * 3}**"
    # Two processes in a pod of `cutouts` and of `lightcurves`, one in the others.
    assert fast["**memory, GB**"] == f"**{number(0.1 * (2 * 2 * 5 + 5 * 5))}**"


def test_compaction_counts_as_often_as_in_a_large_table(tool, figures) -> None:
    once = tool["column"](figures, 1000, 0.0)
    assert once["`compact`: pods; cores"] == "2; 1"
    figures[f"CPU of compact {COMPACT}"] = 100.0  # half of all was merged: 0.2 ms an alert
    again = tool["column"](figures, 1000, 0.0)
    # A fifth is left after the first merge, so each later one takes a fifth of it.
    cores = 1 + 0.2 * (1 + (tool["REWRITTEN"] - 1) / 5)
    assert again["`compact`: pods; cores"] == f"3; {number(cores)}"
    assert again["PUT requests a second"] == number(10 + 2 * 10 * 8 / 7)


def test_bytes_of_a_night(tool, figures) -> None:
    found = tool["column"](figures, 1000, 0.0)  # 36 million alerts in 10 hours
    assert found["**stored, GB a night**"] == "**1,440**"
    assert found["sent by the survey, GB a night"] == "6,120"


def test_what_stays_when_packets_are_merged(tool, figures) -> None:
    """Of 40 KB 20 are packets with 200 rows, of which 4 stay; measured with 100 rows."""
    measured = {
        "packets of 9 ZTF alerts, ten an object in a month, 190 history rows in the mean": {},
        "packets of 9 LSST alerts, ten an object in a month, 100 history rows in the mean": {
            **{"as stored": 10.0, "merged by month": 2.0, "both merges and their proofs": 1.0},
            **{"both merges read": 20.0, "both merges write": 5.0},
        },
    }
    subject = "a million LSST alerts of 9 KB, simulated, 200 history rows in the mean"
    found = tool["merging_lines"](figures, tool["nearest"](measured, subject), 1000)
    assert list(found.values())[:3] == ["**864**", "2", "40; 10"]
    assert found["merging packets: days until it pays"] == number(30 * 0.04 * 20 / (0.023 * 576))


def test_images_and_raw_alerts_are_merged_as_measured_of_their_survey(tool) -> None:
    """Each kind takes 0.1 ms of an alert, and reads 4 KB; packets are counted elsewhere."""
    one = {"merge and proof": 0.1, "merge and proof read": 4.0, "merge and proof write": 1.0}
    kinds = "cutouts", "thumbnails", "raw"
    measured = {f"{kind} of a night of 9 LSST alerts": one for kind in kinds}
    measured |= {f"{kind} of a night of 9 ZTF alerts": {} for kind in (*kinds, "objects")}
    measured["packets of a night of 9 LSST alerts"] = dict.fromkeys(one, 1000.0)
    measured["objects of a night of 9 LSST alerts"] = {"as stored": 21.3, "merged": 1.33}
    night = tool["settled_night"](measured, "LSST alerts of 9 KB, simulated, 200 history rows")
    assert list(tool["night_lines"](night, 1000).values()) == ["0.3", "12; 3", "**21; 1.3**"]


def test_pods_of_compact_have_the_merges_of_packs(tool, figures) -> None:
    """Compaction of tables is 1 ms of an alert, and merging packs 0.75 ms."""
    without, found = (tool["column"](figures, 1000, merges) for merges in (0.0, 0.75))
    assert without["`compact`: pods; cores"] == "2; 1"
    assert found["`compact`: pods; cores"] == f"3; {number(1.75)}"
    assert found["**Stampede: pods; cores**"] == f"**{7 * 2 + 1}; {number(9 + 0.75)}**"
    assert found["`thumbnails`: pods; cores"] == without["`thumbnails`: pods; cores"]


def test_the_page_has_the_merges_of_both_kinds_in_the_pods_of_compact(tool) -> None:
    kept = json.loads(tool["FIGURES"].read_text())
    cheap = json.loads(json.dumps(kept))
    for of in cheap["merging"]["figures"].values():
        of.update({name: 0.0 for name in of if name.startswith("merge and proof")})
    lines = [
        next(line for line in tool["page"](some).splitlines() if line.startswith("| `compact`"))
        for some in (kept, cheap)
    ]
    assert lines[0] != lines[1]


def test_objects_as_stored_are_kept_beside_merged_ones(tool) -> None:
    rival = {"name": "as stored", "value": 21.3333}
    figure = {"benchmark": "merging", "subject": "objects of a night", "name": "merged"}
    whole = {"when": "now", "machine": {"load_before": 1.0}}
    whole["figures"] = [figure | {"value": 1.3333, "rival": rival}]
    kept = tool["kept_of"](whole, {})
    of = kept["merging"]["figures"]["objects of a night"]
    assert of == {"merged": 1.333, "as stored": 21.333}


def test_scrub_counts_by_what_is_stored(tool, figures) -> None:
    """1,440 GB a night: of a hundred nights 4,800 GB a day, in thirty days."""
    scrub = {"CPU of scrub for a GB": 18.0, "CPU of Ceph for a GB": 9.0, "GET for a GB": 36.0}
    found = tool["scrub_lines"](figures, scrub | {"memory of scrub": 500.0}, 1000)
    assert found["`scrub` of 100 nights: GB a day"] == "4,800"
    assert found["`scrub` of 100 nights: cores; of Ceph"] == "1; 0.5"
    assert found["`scrub` of 100 nights: GET requests a second"] == "2"
    # One core reads as much, and by default it reads in two of ten minutes.
    assert found["`scrub`: nights in 30 days; by default"] == "100; 20"
    values = yaml.safe_load((TOOL.parents[1] / "charts/stampede/values.yaml").read_text())
    assert values["functions"]["scrub"]["schedule"] == "5-55/10 * * * *"


def test_figures_of_one_benchmark_leave_those_of_the_other(tool) -> None:
    before = json.loads(tool["FIGURES"].read_text())
    machine = {"processor": "x", "cores": 1, "load_before": 9.0}
    [title, *_] = before["scrub"]["figures"]
    figure = {"benchmark": "scrub", "subject": f"scrub of {title}", "name": "read", "value": 1.0}
    kept = tool["kept_of"]({"when": "now", "machine": machine, "figures": [figure]}, before)
    assert kept == before | {
        "scrub": {"when": "now", "load_before": 9.0, "figures": {title: {"read": 1.0}}}
    }


def test_a_file_without_figures_of_cost_is_refused(tool, tmp_path) -> None:
    before = tool["FIGURES"].read_bytes()
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"figures": [{"benchmark": "decode"}]}))
    ended = subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "no figures of `stampede bench cost scrub merging`" in ended.stderr
    assert tool["FIGURES"].read_bytes() == before


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
