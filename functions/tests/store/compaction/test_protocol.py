"""The protocol of tables and compaction under random operations.

After every step, in any order, a table holds exactly its acknowledged rows, merged as plain Python
merges them.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stampede.errors import StoreDown
from stampede.store.compaction.compact import Policy, Report, compact
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs import writer as run_writer
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.store.rows import Row, bits, detection, key_of, merged, ordered, table
from tests.support.store.watched_objects import Watched

OBJECTS = ("1", "10", "2", "3", "44", "7", "ZTF18", "é")
TOPIC = "alerts"
START = datetime(2026, 11, 20, tzinfo=UTC)

detections = st.lists(
    st.builds(detection, st.sampled_from(OBJECTS), st.integers(0, 2), st.integers(0, 3)),
    max_size=10,
)
# Numbers of a compaction's requests. The early requests matter most.
moments = st.integers(0, 60)
# So that parts have several sections, with filters or without.
SMALL = {"GROUP_ROWS": 2, "SECTION_GROUPS": 2, "SMALL_GROUPS": 2, "SMALL_FILTER": 10}
graces = st.sampled_from([timedelta(0), timedelta(0), timedelta(minutes=5)])


@pytest.fixture(autouse=True, scope="module")
def _small_row_groups() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, small in SMALL.items():
            patch.setattr(run_writer, name, small)
        yield


class OneContentPerName(MemoryObjects):
    """No name may be written with two contents: readers cache footers."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self.ever: dict[str, bytes] = {}

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        assert self.ever.setdefault(key, bytes(data)) == bytes(data)
        super().put(key, data)


class Protocol(RuleBasedStateMachine):
    """Appends, compactions that overtake each other at any request, crashes, stale readers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.store = OneContentPerName(lambda: self.now)
        self.rows: list[Row] = []
        self.offsets: set[int] = set()
        self.turn = 0
        self.appended: list[tuple[list[Row], list[int]]] = []
        self.reader = Table(self.store, DETECTIONS, threads=1)
        self.snapshot: list[Row] = []

    @initialize()
    def look(self) -> None:
        self.reader.refresh()

    @rule(rows=detections, offsets=st.lists(st.integers(0, 30), max_size=4))
    def append(self, rows: list[Row], offsets: list[int]) -> None:
        self.appended.append((rows, offsets))
        self._append(self.store, len(self.appended) - 1)

    @rule(which=st.integers(0, 1000), torn=st.booleans())
    def append_again_after_a_crash(self, which: int, torn: bool) -> None:
        """A flush is repeated whose run may have been merged and deleted since."""
        if self.appended:
            which %= len(self.appended)
            with pytest.raises(StoreDown):
                self._append(Watched(self.store, crash_at=1, torn=torn), which)
            self._append(self.store, which)

    @rule(seconds=st.sampled_from([1, 200, 400]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(grace=graces, run_rows=st.sampled_from([3, 100]), major=st.booleans())
    def compact(self, grace: timedelta, run_rows: int, major: bool) -> None:
        self._compact(self.store, grace, run_rows, major)

    @rule(
        grace=graces,
        run_rows=st.sampled_from([3, 100]),
        major=st.booleans(),
        interruptions=st.dictionaries(
            moments, st.tuples(st.sampled_from(["compact", "major", "append"]), graces), max_size=4
        ),
    )
    def compact_interrupted(
        self, grace: timedelta, run_rows: int, major: bool, interruptions: dict
    ) -> None:
        """Others compact and append between any two requests of a compaction."""

        def before(number: int) -> None:
            operation, other_grace = interruptions.pop(number, (None, None))
            if operation == "append" and self.appended:
                self._append(self.store, number % len(self.appended))
            elif operation:
                for _ in range(2):  # the second removes the inputs that the first merged
                    self._compact(self.store, other_grace, 4, operation == "major")

        self._compact(Watched(self.store, before), grace, run_rows, major)

    @rule(
        grace=graces,
        run_rows=st.sampled_from([3, 100]),
        major=st.booleans(),
        at=st.integers(1, 8),
        torn=st.booleans(),
    )
    def compact_and_crash(
        self, grace: timedelta, run_rows: int, major: bool, at: int, torn: bool
    ) -> None:
        try:
            self._compact(Watched(self.store, crash_at=at, torn=torn), grace, run_rows, major)
        except StoreDown as error:
            assert error.message == "crashed"  # noqa: PT017

    @rule(
        interruptions=st.dictionaries(
            st.integers(0, 25), st.tuples(st.booleans(), graces), max_size=4
        )
    )
    def read_interrupted(self, interruptions: dict) -> None:
        """Others compact and delete between the requests of a reader, two keys a page."""

        def before(number: int) -> None:
            if number in interruptions:
                major, grace = interruptions.pop(number)
                for _ in range(2):
                    self._compact(self.store, grace, 4, major)

        self._check(Table(Watched(self.store, before), DETECTIONS, threads=1))

    @rule()
    def read_with_a_fresh_view(self) -> None:
        self.reader.refresh()
        self.snapshot = list(self.rows)

    @rule()
    def read_with_a_stale_view(self) -> None:
        """It may see newer rows than its view, never older or fewer."""
        found = {key_of(r, DETECTIONS): version(r) for r in self._lookup(self.reader)}
        least = {key_of(r, DETECTIONS): version(r) for r in merged(self.snapshot, DETECTIONS)}
        most = {key_of(r, DETECTIONS): version(r) for r in merged(self.rows, DETECTIONS)}
        assert found.keys() >= least.keys()
        assert all(found[key] >= least[key] for key in least)
        assert all(most[key] >= found[key] for key in found)

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        self._check(Table(self.store, DETECTIONS, threads=1))

    def teardown(self) -> None:
        """In the end the store holds one run and nothing else."""
        for _ in range(3):
            self.now += timedelta(hours=1)
            report = self._compact(self.store, timedelta(minutes=5), 100, True)
        assert not report.written
        self.nothing_is_lost_or_made_up()
        assert len({RunName.parse(info.key).run for info in self.store.list("tables/")}) <= 1

    def _append(self, objects: Objects, which: int) -> None:
        rows, offsets = self.appended[which]
        Table(objects, DETECTIONS, threads=1).append(
            table(rows), Coverage.of({(TOPIC, 0): offsets})
        )
        self.rows += rows
        self.offsets.update(offsets)

    def _compact(self, objects: Objects, grace: timedelta, run_rows: int, major: bool) -> Report:
        self.turn += 1
        return compact(
            Table(objects, DETECTIONS, threads=1),
            self.now,
            Policy(
                fanout=2, run_rows=run_rows, slice_rows=3, grace=grace, major=major, turn=self.turn
            ),
        )

    def _check(self, one: Table) -> None:
        assert bits(self._lookup(one)) == bits(merged(self.rows, DETECTIONS))
        assert one.coverage() == Coverage.of({(TOPIC, 0): self.offsets})

    def _lookup(self, one: Table) -> list[Row]:
        return one.lookup(OBJECTS).to_pylist()


def version(row: Row) -> tuple:
    return tuple(ordered(row[name]) for name in DETECTIONS.compared)


# `tests.store.simulation` has a short form of the same kind of search.
TestProtocol = pytest.mark.long(Protocol.TestCase)
TestProtocol.settings = settings(
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
