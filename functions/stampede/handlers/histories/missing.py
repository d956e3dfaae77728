"""Detections that histories have and that never came as an alert of their own, and likely causes.

Nothing here reads a store: rows and ids come in as arrays. docs/how-to/alerts-that-never-came.md
describes the causes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import DETECTION
from stampede.handlers.histories.causes import (
    CAUSES,
    UNEXPLAINED,
    Cause,
    Known,
    with_causes,
)
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.runs.merge import one_array

COLUMNS = (
    *("survey", "source_id", "object_id", "forced", "limit", "mjd", "reliability", "rb"),
    *("visit", "detector", "withdrawn", "processed_mjd", "programid"),
)
"""The columns of `detections` that are read."""
MOST_ROWS = 1_000_000
"""Rows of missing detections, repeats included, after which repeats are dropped, if no more than
half of them were kept before: 80 MB."""


class Group(NamedTuple):
    """Detections of one night, visit and detector that did not come, with one cause.

    Attributes
    ----------
    night
        Integer MJD.
    visit, detector
        None if the survey does not say.
    missing, came
        Detections that did not come, and those of the same visit and detector that did.
    ids, objects
        Ids of the detections that did not come, and the objects that have them in their history.
    """

    survey: str
    night: int
    visit: int | None
    detector: int | None
    cause: Cause
    missing: int
    came: int
    ids: list[int]
    objects: list[str]


def distinct(ids: np.ndarray) -> np.ndarray:
    """Ids, each once, ascending; int64. By sorting: `numpy.unique` took ten times as long."""
    ids = np.sort(ids.astype(np.int64, copy=False))
    found: np.ndarray = ids[np.append(True, ids[1:] != ids[:-1])[: len(ids)]]
    return found


class Own(NamedTuple):
    """The alerts of one survey that are stored in a window: ids, ascending, and what they are of.

    Arrays of shape (n,). The others are filled as their detections are seen; `night` is 0 before.
    """

    ids: np.ndarray
    night: np.ndarray
    visit: np.ndarray
    detector: np.ndarray
    score: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray) -> "Own":
        """Alerts of which nothing but the id is known; `ids` in any order, with repeats."""
        ids = distinct(ids)
        count = len(ids)
        return cls(
            ids,
            np.zeros(count, np.int32),
            np.zeros(count, np.int64),
            np.zeros(count, np.int32),
            np.full(count, np.nan, np.float32),
        )

    def places(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id whether it is here, and where."""
        at = np.minimum(self.ids.searchsorted(wanted), max(0, len(self.ids) - 1))
        here = self.ids[at] == wanted if len(self.ids) else np.zeros(len(wanted), bool)
        return here, at


class Window:
    """The detections of some nights, ``[first, end)``, and which of them came as alerts.

    Takes 30 bytes for an alert and 80 for a detection that did not come. Rows may be added in any
    order, in several versions and repeatedly.

    Parameters
    ----------
    own
        Ids of the stored alerts of each survey, at least those of the window.

    Attributes
    ----------
    kept
        Detections that did not come, when repeats were last dropped.
    rows
        Rows of those that are held, with repeats.
    """

    def __init__(self, first: int, end: int, own: Mapping[str, np.ndarray]) -> None:
        self.first, self.end = first, end
        self._own = {survey: Own.of(ids) for survey, ids in own.items()}
        self._programmes: dict[str, set[int]] = {}
        self._missing = [_SCHEMA.empty_table()]
        self.kept = self.rows = 0

    def add(self, rows: pa.Table) -> None:
        """Take rows of `detections`, with `COLUMNS`."""
        inside = pc.and_(pc.greater_equal(rows["mjd"], self.first), pc.less(rows["mjd"], self.end))
        rows = rows.filter(
            pc.and_(inside, pc.invert(pc.or_(rows["forced"], rows["limit"])))
        ).combine_chunks()
        for survey in rows["survey"].unique().to_pylist():
            self._add(survey, rows.filter(pc.equal(rows["survey"], survey)))

    def learn(self, known: Known) -> None:
        """Tell `known` of the alerts of this window; call it after the last `add`."""
        for survey, own in self._own.items():
            seen = own.night > 0
            known.add(survey, own.night[seen], own.score[seen], self._programmes.get(survey, set()))

    def came(self) -> Counter[tuple[str, int]]:
        """How many detections of this window came as an alert, by survey and night."""
        found = Counter[tuple[str, int]]()
        for survey, own in self._own.items():
            nights, counts = np.unique(own.night[own.night > 0], return_counts=True)
            for night, count in zip(nights.tolist(), counts.tolist(), strict=True):
                found[survey, night] = count
        return found

    def missing(self, known: Known) -> pa.Table:
        """Each detection that did not come, once, with its `night` and its `cause`, a number."""
        self._drop_repeats()
        rows = pa.concat_tables(self._missing).sort_by(
            [("survey", "ascending"), ("source_id", "ascending")]
        )
        found = [rows.filter(pc.equal(rows["survey"], name)) for name in _surveys(rows)]
        return pa.concat_tables(
            [with_causes(each, each["survey"][0].as_py(), known) for each in found]
            or [with_causes(rows, "", known)]
        )

    def groups(self, missing: pa.Table, most_ids: int) -> Iterator[Group]:
        """What did not come, by night, survey, visit, detector and cause.

        Of a group that is explained at most `most_ids` ids are kept.
        """
        if not missing.num_rows:
            return
        keys = ["night", "survey", "visit", "detector", "cause"]
        rows = missing.join(self._came(), keys[:-1]).sort_by("source_id")
        grouped = rows.group_by(keys, use_threads=False).aggregate(
            [("source_id", "list"), ("object_id", "list"), ("came", "max")]
        )
        grouped = grouped.sort_by([(name, "ascending") for name in keys])
        for row in chain.from_iterable(map(pa.RecordBatch.to_pylist, grouped.to_batches(1000))):
            ids, objects = row["source_id_list"], row["object_id_list"]
            kept = len(ids) if row["cause"] == UNEXPLAINED else most_ids
            yield Group(
                row["survey"],
                row["night"],
                row["visit"] if row["visit"] >= 0 else None,
                row["detector"] if row["detector"] >= 0 else None,
                CAUSES[row["cause"]],
                len(ids),
                row["came_max"] or 0,
                ids[:kept],
                objects[:kept],
            )

    def _add(self, survey: str, rows: pa.Table) -> None:
        own = self._own.setdefault(survey, Own.of(np.empty(0, np.int64)))
        here, at = own.places(rows["source_id"].to_numpy())
        visits, detectors = _filled(rows["visit"]), _filled(rows["detector"])
        if here.any():
            came = at[here]
            own.night[came] = np.floor(rows["mjd"].to_numpy()[here])
            own.visit[came], own.detector[came] = visits[here], detectors[here]
            own.score[came] = np.fmin(own.score[came], _scores(rows)[here])
            sent = rows["programid"].filter(pa.array(here)).unique().drop_null()
            self._programmes.setdefault(survey, set()).update(sent.to_pylist())
        if here.all():
            return
        rest = pa.table(
            {
                **{name: rows[name] for name in _KEPT},
                "score": pa.array(_scores(rows), pa.float32()),
                "visit": pa.array(visits, pa.int64()),
                "detector": pa.array(detectors, pa.int32()),
            }
        ).filter(pa.array(~here))
        self._missing.append(rest.select(_SCHEMA.names).cast(_SCHEMA))
        self.rows += rest.num_rows
        if self.rows > max(MOST_ROWS, 2 * self.kept):
            self._drop_repeats()

    def _drop_repeats(self) -> None:
        """Keep one row of each detection: its earliest processing, and whether any withdrew it."""
        rows = pa.concat_tables(self._missing)
        found = rows.group_by(["survey", "source_id"], use_threads=False).aggregate(
            list(_KEEP.items())
        )
        names = {f"{name}_{how}": name for name, how in _KEEP.items()}
        found = found.rename_columns([names.get(name, name) for name in found.column_names])
        self._missing = [found.select(_SCHEMA.names).cast(_SCHEMA)]
        self.kept = self.rows = found.num_rows

    def _came(self) -> pa.Table:
        """How many alerts came, by night, survey, visit and detector."""
        found = []
        for survey, own in self._own.items():
            places = pa.table(
                {"night": own.night, "visit": own.visit, "detector": own.detector}
            ).filter(pa.array(own.night > 0))
            counts = places.group_by(places.column_names).aggregate([([], "count_all")])
            counts = counts.rename_columns([*places.column_names, "came"])
            names = pa.array([survey] * counts.num_rows, pa.string())
            found.append(counts.append_column("survey", names))
        return pa.concat_tables(found)


_KEEP = {
    **{"object_id": "min", "mjd": "min", "processed_mjd": "min", "withdrawn": "max"},
    **{"score": "max", "visit": "max", "detector": "max", "programid": "max"},
}
"""What is kept of the versions of a detection: the same in every order of arrival."""
_KEPT = ("survey", "source_id", "object_id", "mjd", "processed_mjd", "withdrawn", "programid")
_SCHEMA = pa.schema(
    [
        *(DETECTION.field(name).remove_metadata().with_nullable(True) for name in _KEPT),
        pa.field("score", pa.float32()),
        pa.field("visit", pa.int64()),
        pa.field("detector", pa.int32()),
    ]
)


def _surveys(rows: pa.Table) -> list[str]:
    names: list[str] = sorted(rows["survey"].unique().to_pylist())
    return names


def _filled(column: pa.ChunkedArray) -> np.ndarray:
    """A column of integers, -1 where it is null."""
    return np.asarray(one_array(pc.fill_null(column, -1)))


def _scores(rows: pa.Table) -> np.ndarray:
    """The score that alerts and histories share: ztf's rb, otherwise reliability; NaN if none."""
    return np.asarray(one_array(pc.fill_null(pc.coalesce(rows["rb"], rows["reliability"]), np.nan)))
