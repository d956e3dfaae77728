"""What `scrub` costs: CPU time, requests to S3, and how fast it reads.

It reads the whole store again and again, so its cost counts by GB stored, not by alerts that come.
`tools/capacity.py` computes a page of that.
"""

from collections.abc import Iterator, Mapping

from stampede.events.auth.access import key_header
from stampede.store.integrity import scrub_state
from stampede.store.objects.object_store import Objects
from stampede_bench.figures import Bound, Context, Figure
from stampede_bench.ingestion.cost import DRAWN, LOOK_SECONDS, PARTS, systems, totals
from stampede_bench.ingestion.ingest import fill, paused, wait_until_complete, wait_until_stored
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.cpu import Cpu, peak_memory
from stampede_bench.instruments.gateway import Gateway
from stampede_bench.instruments.load import Load
from stampede_local.system import System
from stampede_local.up import send

READ = "stampede_scrubbed_bytes_total"
# A process that has just started takes about half a second of CPU more. A pass of two minutes reads
# 12 GB, so the first round, of a fifth of a GB, is not measured.
ROUNDS = 3
# Half again what was measured on a busy machine: 4.3 to 5.4. It was 13 to 17 before thumbnails said
# what they were drawn from.
MOST_CPU, TARGET = Bound("<=", 8.0), Bound("<=", 3.5)


def measure(context: Context) -> Iterator[Figure]:
    """Each survey in a system of its own, as `cost` has them."""
    for alerts, live, found in systems(context, "scrub"):
        yield from one_survey(context, live, alerts, found)


def one_survey(
    context: Context, live: System, alerts: Load, found: Mapping[str, int]
) -> Iterator[Figure]:
    """Store alerts, draw and compact them; then scrub whole rounds."""
    [topic] = live.plan.topics
    fill(live.settings, topic, alerts.messages)
    wait_until_stored(live, len(alerts.messages), DRAWN, LOOK_SECONDS)
    wait_until_complete(live.settings, topic)
    bucket = open_bucket(live.settings)
    send("compact", live.urls["compact"], key_header(live.settings))
    with paused([live.processes["read"]]):  # it lists tables every 2 s
        one_round(live, bucket)
        before = totals(live.urls["scrub"], READ)[READ]
        gateway, cpu = Gateway(live.processes["radosgw"]), Cpu(found)
        passes = sum(one_round(live, bucket) for _ in range(ROUNDS))
        spent, wall, requests = cpu.seconds(), cpu.wall, gateway.requests()
    read = (totals(live.urls["scrub"], READ)[READ] - before) / 1e9
    context.progress(f"{alerts.survey}: {read:.2f} GB scrubbed in {passes} passes")
    subject = f"scrub of {alerts.title}"
    own = spent["scrub"] / read
    yield Figure(subject, "CPU of scrub for a GB", own, "CPU s", None, MOST_CPU, None, TARGET)
    ceph = sum(spent[name] for name in PARTS["Ceph"])
    yield Figure(subject, "CPU of Ceph for a GB", ceph / read, "CPU s")
    yield Figure(subject, "GET for a GB", requests["GET"] / read, "requests")
    yield Figure(subject, "read", 1e3 * read / wall, "MB/s")
    yield Figure(subject, "read in all", read, "GB")
    yield Figure(subject, "memory of scrub", peak_memory(found)["scrub"] / 1e6, "MB at most")


def one_round(live: System, bucket: Objects) -> int:
    """Scrub everything once, from the beginning; return in how many passes."""
    for info in [*bucket.list(scrub_state.PREFIX)]:
        bucket.delete(info.key)
    passes = 0
    while not (state := scrub_state.load(bucket, "store")) or not state.done:
        send("scrub", live.urls["scrub"], key_header(live.settings))
        passes += 1
    return passes
