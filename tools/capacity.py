"""Writes docs/how-to/plan-capacity.md: `python tools/capacity.py build/bench.json`.

The page is computed from the figures of `stampede bench cost`, `scrub` and `merging` in that
file, which are kept beside it. What the file lacks, or without a file all, is computed from those
that are kept. A test compares the two.
"""

import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from stampede.config.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "plan-capacity.md"
FIGURES = PAGE.with_suffix(".json")

RATES = (100, 300, 1000, 3000)  # alerts a second
BUSY = 0.7  # of a core, in the mean: the rest is for bursts
NIGHT_HOURS = 10
COPIES = {"in three copies": 3.0, "with erasure coding 4+2": 1.5}  # bytes on disks for each stored
SCRUBBED_NIGHTS = 100  # that are stored, in the lines of `scrub`
SCRUB_DAYS = Settings.model_fields["scrub_days"].default
# How much of the time it reads by default: `functions.scrub.schedule` is every ten minutes.
SCRUB_SHARE = Settings.model_fields["scrub_seconds"].default / 600
FANOUT = Settings.model_fields["fanout"].default
REWRITTEN = 6.6  # times that a row is merged in a table of 10^9 alerts (docs/scale.md)
CORE_HOUR, GB_MONTH = 0.04, 0.023  # dollars, about what clouds ask
OF_NIGHT = " of a night of "  # in subjects of figures
IN_NIGHT = "cutouts", "thumbnails", "raw"  # what is merged within its night alone
MERGE = ("compact",)
# Processes of a pod of each kind: each uses one core at most.
PODS = {
    "source": ("sources",),
    "`cutouts`": ("cutouts", "cutouts workers"),
    "`lightcurves`": ("lightcurves", "lightcurves workers"),
    "`notifications`": ("notifications",),
    "`broker`": ("broker",),
    "`thumbnails`": ("thumbnails",),
    "`compact`": MERGE,
}
Figures = Mapping[str, float]
HEAD = """# Plan capacity

`python tools/capacity.py build/bench.json` computes this page from the figures that
`stampede bench cost scrub merging` measured; do not edit it. They come from {cores} cores of
{processor}, {when}, load average {load}, and are in [plan-capacity.json](plan-capacity.json).
Run both commands on your machine, and the page is about yours.

- **Cores** are CPU seconds a second, in the mean. A core that is half as fast counts half.
- **Pods** are so many that each process, which uses one core at most, is busy {busy:.0%} of the
  time. `scaling.max-scale` of a function must allow them.
- **Memory** is the most that the processes of all these pods held. That of `compact` was measured
  without merges of packs, which hold objects of 64 MB at once.
- **The broker** is the one of `stampede up`; on a cluster Knative's takes its place.
- **Compaction** merges each row {rewritten} times, as in a table of 10^9 alerts
  ([scale.md](../scale.md)). The first merge was measured. Later ones have less to do, as the first
  removes history rows that repeat: CPU time and bytes count by what is left. Each level has an
  eighth of the runs of the one below, so all levels take 8/7 of the requests of the first.
- **Ceph and Kafka** keep one copy here. The last lines have the disks of three copies and of
  erasure coding 4+2; of small objects the latter takes more
  ([benchmarks.md](../benchmarks.md)).
- **Requests** are those of full batches, as a visit or a backlog brings them. Of a slower stream
  each pod makes about a batch every {linger} ms (`most_linger_ms`). An alert that comes
  while no other waits or is being stored is a batch of its own. Listings, and all that `read`,
  `reconcile` and deletions ask for, are not counted: they go by time, by readers and by nights.
- **`scrub`** reads all that is stored every {days:.0f} days (`scrub_days`), whether alerts come or
  not. Its lines are for each {nights} nights that are kept. Of three copies it reads one, of 4+2
  the four parts that have the data: the same bytes. Ceph's own deep scrub is not counted. It is
  one process. The last line says how many nights that can read within {days:.0f} days, if it is
  busy all the time and if it reads in {share:.0%} of the time, as by default (`scrub_seconds`,
  `functions.scrub.schedule`). A round that would end too late reads in twice that share. To keep
  more, make `scrub_days` longer. Measured {scrub_when}, load average {scrub_load}: on a busy
  machine all takes more CPU time.
- **Packets are merged** by object, a night and a month later, where ten alerts of an object come in
  a month. The line of what is stored then counts what stays. Measured {merging_when}, load average
  {merging_load}. `compact` does it, in the time that `merge_seconds` gives. It pays when the bytes
  that it saved would have cost as much as its cores, at {gb_month} dollars for a GB and month and
  {core_hour} for a core and hour. Ceph's cores are not counted.
- **Images and raw alerts are merged** within their night
  ([record 72](../adr/0072-merged-nights.md)). Bytes are those of the merge and of the proofs before
  what was merged is deleted. Objects are those of all four kinds once their night was merged;
  those of packets become fewer still a month later. They are those of full batches too.
- **Pods of `compact`** and its cores have all these merges, as if they were made at the rate at
  which alerts come. They wait for two days anyway (`merge_days`) and may be made in all 24 hours of
  a day: then they take {hours}/24 of these cores.
- **A night** has {hours} hours at the rate of its column: 10^7 alerts are 278 a second, so the
  column of 300. Choose disks by the mean rate of the survey, and pods by the rate at which a burst
  is to be stored.
- **History rows** decide what an alert of LSST costs: one row takes 143 bytes in a packet and a
  place in the light curve. Eight real alerts had 573 in the mean; 250 are those of a survey in its
  first year.
"""


def page(kept: Mapping) -> str:
    """The whole page, of what `FIGURES` holds."""
    machine = kept["machine"]
    text = HEAD.format(
        processor=machine["processor"],
        cores=machine["cores"],
        when=kept["when"][:10],
        load=machine["load_before"],
        busy=BUSY,
        rewritten=REWRITTEN,
        linger=Settings.model_fields["most_linger_ms"].default,
        hours=NIGHT_HOURS,
        days=SCRUB_DAYS,
        nights=SCRUBBED_NIGHTS,
        share=SCRUB_SHARE,
        scrub_when=kept["scrub"]["when"][:10],
        scrub_load=kept["scrub"]["load_before"],
        merging_when=kept["merging"]["when"][:10],
        merging_load=kept["merging"]["load_before"],
        gb_month=GB_MONTH,
        core_hour=CORE_HOUR,
    )
    for subject, figures in kept["figures"].items():
        scrub = kept["scrub"]["figures"][subject.removeprefix("a million ")]
        merging = nearest(kept["merging"]["figures"], subject)
        night = settled_night(kept["merging"]["figures"], subject)
        merges = merging["both merges and their proofs"] + night["merge and proof"]
        columns = [
            column(figures, rate, merges)
            | merging_lines(figures, merging, rate)
            | night_lines(night, rate)
            | scrub_lines(figures, scrub, rate)
            for rate in RATES
        ]
        text += f"\n## {subject.removeprefix('a million ')}\n\n"
        text += f"| | {' | '.join(f'{rate:,}/s' for rate in RATES)} |\n|---|{'--:|' * len(RATES)}\n"
        for name in columns[0]:
            text += f"| {name} | {' | '.join(each[name] for each in columns)} |\n"
    return text


def nearest(measured: Mapping[str, Figures], subject: str) -> Figures:
    """The figures of merged packets of the same survey with the most similar number of rows.

    Bytes and time of a packet grow with its rows.
    """
    survey, rows = survey_and_rows(subject)
    others = {name: survey_and_rows(name) for name in measured if OF_NIGHT not in name}
    same = [name for name, (other, _) in others.items() if other == survey]
    name = min(same, key=lambda name: abs(others[name][1] - rows))
    return {what: value * rows / others[name][1] for what, value in measured[name].items()}


def settled_night(measured: Mapping[str, Figures], subject: str) -> Figures:
    """What merging the images and raw alerts of a night of the same survey takes, of an alert.

    None of them has history rows. `objects` and `objects as stored` are for a thousand alerts.
    """
    survey, _ = survey_and_rows(subject)
    of_kind = {
        name.partition(OF_NIGHT)[0]: figures
        for name, figures in measured.items()
        if OF_NIGHT in name and survey in name
    }
    names = "merge and proof", "merge and proof read", "merge and proof write"
    found = {name: sum(of_kind[kind][name] for kind in IN_NIGHT) for name in names}
    objects = of_kind["objects"]
    return found | {"objects": objects["merged"], "objects as stored": objects["as stored"]}


def survey_and_rows(subject: str) -> tuple[str, int]:
    """The survey and the history rows in the subject of a figure."""
    [(survey, rows)] = re.findall(r"(LSST|ZTF).* (\d+) history rows", subject)
    return survey, int(rows)


def column(of: Figures, rate: float, merges: float) -> dict[str, str]:
    """What alerts of a survey at a rate (alerts/s) take, row by row.

    `merges`: CPU of all merges of packs and raw alerts, ms an alert.
    """
    of_all = of["all"] / of["merged for the first time"]  # as if all of it had been merged
    left = of["left of it, without what repeats"] / of["merged for the first time"]
    again = of_all * (1 + (REWRITTEN - 1) * left)

    def second(figure: str, times: float = again) -> float:
        """A figure for each second, all merges of a row included."""
        return rate * (of[f"{figure} until drawn"] + times * of[f"{figure} to compact"]) / 1e6

    text, pods, cores, memory = {}, 0, 0.0, 0.0
    for kind, parts in PODS.items():
        used = [second(f"CPU of {part}") for part in parts]
        if parts == MERGE:
            used[0] += rate * merges / 1e3
        enough = max(1, math.ceil(max(used) / BUSY))
        text[f"{kind}: pods; cores"] = f"{enough}; {number(sum(used))}"
        pods, cores = pods + enough, cores + sum(used)
        memory += enough * sum(of[f"memory of {part}"] for part in parts) / 1e3
    text["**Stampede: pods; cores**"] = f"**{pods}; {number(cores)}**"
    text["**memory, GB**"] = f"**{number(memory)}**"
    for part in ("Ceph", "Kafka"):
        text[f"{part}: cores"] = number(second(f"CPU of {part}"))
    for kind in ("PUT", "GET"):
        levels = FANOUT / (FANOUT - 1)
        text[f"{kind} requests a second"] = number(second(kind, of_all * levels))
    text["written, MB/s"] = number(1e3 * second("written"))
    night = 3600 * NIGHT_HOURS * rate / 1e6
    text["sent by the survey, GB a night"] = number(night * of["sent"])
    text["**stored, GB a night**"] = f"**{number(night * of['stored'])}**"
    for name, copies in COPIES.items():
        text[f"on disks {name}, GB a night"] = number(night * of["stored"] * copies)
    return text


def scrub_lines(of: Figures, scrub: Figures, rate: float) -> dict[str, str]:
    """What `scrub` takes, row by row, of nights at a rate (alerts/s)."""
    night = 3600 * NIGHT_HOURS * rate / 1e6 * of["stored"]  # GB
    day = night * SCRUBBED_NIGHTS / SCRUB_DAYS
    most = 86400 * SCRUB_DAYS / scrub["CPU of scrub for a GB"] / night
    name = f"`scrub` of {SCRUBBED_NIGHTS} nights"
    return {
        f"{name}: GB a day": number(day),
        f"{name}: cores; of Ceph": "; ".join(
            number(day * scrub[f"CPU of {part} for a GB"] / 86400) for part in ("scrub", "Ceph")
        ),
        f"{name}: GET requests a second": number(day * scrub["GET for a GB"] / 86400),
        "`scrub`: memory, GB": number(scrub["memory of scrub"] / 1e3),
        f"`scrub`: nights in {SCRUB_DAYS:.0f} days; by default": (
            f"{number(most)}; {number(most * SCRUB_SHARE)}"
        ),
    }


def merging_lines(of: Figures, merging: Figures, rate: float) -> dict[str, str]:
    """What merged packets take and cost, row by row, of alerts at a rate (alerts/s)."""
    alerts = 3600 * NIGHT_HOURS * rate
    saved = alerts * (merging["as stored"] - merging["merged by month"]) / 1e6  # GB
    left = alerts / 1e6 * of["stored"] - saved
    return {
        "**stored when packets are merged, GB a night**": f"**{number(left)}**",
        "merging packets: cores": number(rate * merging["both merges and their proofs"] / 1e3),
        "merging packets: read; written, MB/s": "; ".join(
            number(rate * merging[f"both merges {what}"] / 1e3) for what in ("read", "write")
        ),
        "merging packets: days until it pays": number(
            30
            * CORE_HOUR
            * rate
            * merging["both merges and their proofs"]
            / 1e3
            * NIGHT_HOURS
            / (GB_MONTH * saved)
        ),
    }


def night_lines(night: Figures, rate: float) -> dict[str, str]:
    """What merging images and raw alerts takes, row by row, of alerts at a rate (alerts/s)."""
    name = "merging images and raw alerts"
    objects = "; ".join(number(night[what]) for what in ("objects as stored", "objects"))
    return {
        f"{name}: cores": number(rate * night["merge and proof"] / 1e3),
        f"{name}: read; written, MB/s": "; ".join(
            number(rate * night[f"merge and proof {what}"] / 1e3) for what in ("read", "write")
        ),
        "**objects of 1,000 alerts: as stored; merged by night**": f"**{objects}**",
    }


def number(value: float) -> str:
    """Two significant digits, and whole numbers in full."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def kept_of(whole: Mapping, before: Mapping) -> dict:
    """What is kept of a bench.json: machine, time, and the figures by subject.

    `before` is what was kept: of what the benchmarks in this file did not measure.
    """
    found: dict[str, dict[str, dict[str, float]]] = {"cost": {}, "scrub": {}, "merging": {}}
    for figure in whole["figures"]:
        if figure["benchmark"] in found:
            subject = figure["subject"].removeprefix("scrub of ")
            of = found[figure["benchmark"]].setdefault(subject, {})
            of[figure["name"]] = round(figure["value"], 3)
            if figure["name"] == "stored":
                of["sent"] = round(figure["rival"]["value"], 3)
            if figure["name"] == "merged":
                of["as stored"] = round(figure["rival"]["value"], 3)
            if figure["name"] == "merged for the first time":
                of["all"] = round(figure["rival"]["value"], 3)
    if not any(found.values()):
        sys.exit(f"the file has no figures of `stampede bench {' '.join(found)}`")
    kept, machine = dict(before), whole["machine"]
    if found["cost"]:
        kept["when"] = whole["when"]
        kept["machine"] = {name: machine[name] for name in ("processor", "cores", "load_before")}
        kept["figures"] = found["cost"]
    for name in "scrub", "merging":
        if found[name]:
            when = {"when": whole["when"], "load_before": machine["load_before"]}
            kept[name] = when | {"figures": found[name]}
    return kept


if __name__ == "__main__":
    if len(sys.argv) > 1:
        kept = kept_of(json.loads(Path(sys.argv[1]).read_text()), json.loads(FIGURES.read_text()))
        FIGURES.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(json.loads(FIGURES.read_text())))
