"""A HATS catalogue of the store: the objects, each with its light curve, by HEALPix pixel.

The format is that of the IVOA note HATS 1.0 (https://www.ivoa.net/documents/Notes/HATS/): a Parquet
file for each pixel. The light curve is a struct of lists, which nested-pandas takes for a table.
Later calls write only the pixels of objects that have new points.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound, SetupError, StampedeError
from stampede.handlers.hats.collection import Published, finish
from stampede.handlers.hats.curves import with_curves
from stampede.handlers.hats.files import (
    MARGIN,
    MOVING,
    OBJECTS,
    Cell,
    Pixel,
    State,
    claim,
    read_footer,
    read_pixel,
    read_state,
    write_pixel,
)
from stampede.handlers.hats.partitions import INDEX, Leaves
from stampede.handlers.hats.places import ORDER, Places, places_in
from stampede.handlers.hats.points import points_of
from stampede.store.integrity.verified_objects import read_columns
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import first_site, open_objects, open_store
from stampede.store.parquet.checksums import FileMetaData
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from stampede.telemetry import read_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

MOST_OBJECTS = 10_000
"""Objects in a pixel, which is made in memory: with 100 points each 200 MB."""
READ_IDS = 10_000
"""Objects whose points are looked up at once."""
_DERIVE = (
    " of points in `detections`, and the catalogue would lack objects: `stampede reconcile` "
    "derives them; then publish again"
)

Pixels = dict[Cell, pa.Table]


def publish(
    objects: Objects,
    files: Objects,
    name: str,
    most: int = MOST_OBJECTS,
    again: bool = False,
    rights: Rights = EVERYTHING,
) -> Published:
    """Write the catalogue, or the pixels of it that have new points; `again` writes all.

    Readers see the pixels that are written one by one, then the list of the pixels. What the list
    lacks is deleted after that.

    Parameters
    ----------
    objects
        The store.
    files
        Where the catalogue is: a folder or a bucket of its own.
    name
        Of the catalogue.
    rights
        Only points of programmes that are stored. If these were others before, all is written.

    Raises
    ------
    SetupError
        There are other files; or the store has no objects.
    Damaged
        Rows of the store cannot be read, or are lost: the catalogue would lack them.
    StoreDown
        The store does not answer.
    """
    before = None if again else read_state(files)
    detections, positions = Table(objects, DETECTIONS), Table(objects, POSITIONS)
    try:
        detections.refresh()
        positions.refresh()
        parts = detections.runs()
        coverage = Coverage.union(part.coverage for part in parts)
        _check_offsets(coverage, positions.coverage(), before)
        programids = None if rights.programids is None else tuple(sorted(rights.programids))
        if before and before.programids != programids:
            before = None
        places = places_in(positions, rights)
        ids = _ids(objects, [part for part in parts if not before or _is_new(part, before)])
        _check_objects(detections, places.all, ids, rights)
        if not places.all.num_rows:
            raise SetupError("the store has no objects with a position: nothing to publish")
        leaves = Partitions.of(places, most)
        pixels = leaves.pixels(places)
        stale = leaves.around(_of(places.all, ids)) if before else set[Cell]()
        footers, kept = _kept(files, before, pixels, stale)
        claim(files)
        todo = {cell: pixels[cell] for cell in sorted(pixels.keys() - footers.keys())}
        made = _write(files, detections, todo, kept, ids, rights)
        stay = {cell: before.pixels[cell] for cell in footers} if before else {}
        footers |= {cell: read_footer(files, cell, pixel) for cell, pixel in made.items()}
        runs = frozenset(part.key for part in parts)
        state = State(stay | made, runs, coverage, programids)
        return finish(files, name, state, footers, len(made), leaves.ids(places))
    finally:
        detections.close()
        positions.close()


def publish_pass(settings: Settings) -> None:
    """Bring the catalogue of STAMPEDE_CATALOGUE up to date: a pass of the function `publish`.

    Raises
    ------
    SetupError
        The setting is empty, is no place for a catalogue, or is the store itself.
    Damaged, StoreDown
        As `publish`.
    """
    begin = time.perf_counter()
    files, name = open_catalogue(settings, settings.catalogue)
    try:
        done = publish(open_objects(settings), files, name, rights=Rights.of(settings))
    except StampedeError as error:
        read_metrics.PUBLISH_PASSES.labels(error.name).inc()
        log.error("publishing failed", outcome=error.name, why=error.message)
        raise
    read_metrics.PUBLISH_PASSES.labels("done").inc()
    read_metrics.PUBLISHED_OBJECTS.set(done.objects)
    milliseconds = round(1000 * (time.perf_counter() - begin))
    log.info("published", catalogue=name, **done._asdict(), milliseconds=milliseconds)


def open_catalogue(settings: Settings, where: str) -> tuple[Objects, str]:
    """The files of a catalogue, and its name, which is the last part of the place.

    Parameters
    ----------
    where
        A bucket of its own, http(s)://HOST:PORT/BUCKET, for which the store's keys are used; or
        file:///FOLDER.

    Raises
    ------
    SetupError
        It is no such place, or it is the store itself.
    """
    if not where:
        raise SetupError("where is the catalogue? Set STAMPEDE_CATALOGUE to a bucket of its own")
    where = where.rstrip("/")
    if where == settings.store.rstrip("/"):
        raise SetupError(f"{where} is the store itself: give a bucket of its own")
    return open_store(replace(first_site(settings), url=where)), unquote(where.rpartition("/")[2])


class Partitions(NamedTuple):
    """The pixels of the objects, and those of the objects that move."""

    fixed: Leaves
    moving: Leaves

    @classmethod
    def of(cls, places: Places, most: int) -> "Partitions":
        """Those of which none has more than `most` objects, if it is not the smallest."""
        return cls(*(Leaves(rows[INDEX].to_numpy(), most) for rows in places[1:]))

    def pixels(self, places: Places) -> Pixels:
        """The objects of each pixel, of margins too."""
        found = _by_cell(OBJECTS, places.fixed, self.fixed.of(places.fixed[INDEX].to_numpy()))
        found |= _by_cell(MOVING, places.moving, self.moving.of(places.moving[INDEX].to_numpy()))
        rows, margins = self.fixed.margins(places.fixed[INDEX].to_numpy())
        return found | _by_cell(MARGIN, places.fixed.take(pa.array(rows)), margins)

    def around(self, rows: pa.Table) -> set[Cell]:
        """The pixels that have or had any of these places, of margins too."""
        cells = rows[INDEX].to_numpy()
        places = {
            OBJECTS: self.fixed.of(cells),
            MOVING: self.moving.of(cells),
            MARGIN: self.fixed.margins(cells)[1],
        }
        return {Cell(name, *leaf) for name, some in places.items() for leaf in some.tolist()}

    def ids(self, places: Places) -> pa.Table:
        """The pixel of each object that does not move."""
        orders, numbers = self.fixed.of(places.fixed[INDEX].to_numpy()).T
        folders = numbers // 10_000 * 10_000
        columns = {
            "object_id": places.fixed["object_id"],
            "Norder": pa.array(orders.astype(np.uint8)),
            "Dir": pa.array(folders.astype(np.uint64)),
            "Npix": pa.array(numbers.astype(np.uint64)),
        }
        return pa.table(columns)


def _by_cell(catalogue: str, rows: pa.Table, leaves: np.ndarray) -> Pixels:
    """The rows of each pixel; `leaves` has order and number of that of each row."""
    along = np.lexsort((leaves[:, 1], leaves[:, 0]))
    rows, leaves = rows.take(pa.array(along)), leaves[along]
    starts = np.flatnonzero(np.append(True, (leaves[1:] != leaves[:-1]).any(axis=1))[: len(leaves)])
    ends = np.append(starts, len(leaves))[1:]
    return {
        Cell(catalogue, *leaves[begin].tolist()): rows.slice(begin, end - begin)
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)
    }


def _check_offsets(stored: Coverage, located: Coverage, before: State | None) -> None:
    """Raise `Damaged` if runs are lost: of `positions`, or of what the catalogue was made of."""
    if lost := stored - located:
        raise Damaged(f"the table `positions` lacks {len(lost):,} offsets{_DERIVE}")
    if before and (lost := before.coverage - stored):
        raise Damaged(
            f"the table `detections` lacks {len(lost):,} offsets of the catalogue that it had: "
            "`stampede audit` names them; write all that is left with --again"
        )


def _check_objects(detections: Table, places: pa.Table, ids: pa.Array, rights: Rights) -> None:
    """Raise `Damaged` if `positions` lacks any object of `ids` that has a position.

    Offsets do not tell of points that did not come from Kafka.
    """
    unknown = ids.filter(pc.invert(pc.is_in(ids, places["object_id"].combine_chunks())))
    for start in range(0, len(unknown), READ_IDS):
        points = rights.rows(detections.lookup(unknown.slice(start, READ_IDS).to_pylist()))
        if lost := len(positions_of(points)["object_id"].unique()):
            raise Damaged(f"the table `positions` lacks {lost:,} objects{_DERIVE}")


def _kept(
    files: Objects, before: State | None, pixels: Pixels, stale: set[Cell]
) -> tuple[dict[Cell, FileMetaData], dict[Cell, Pixel]]:
    """The footers of the pixels that stay as they are, and what is known of those that gain points.

    A pixel whose footer is not as it was written is neither: it is made anew.
    """
    footers: dict[Cell, FileMetaData] = {}
    there = {c: pixel for c, pixel in before.pixels.items() if c in pixels} if before else {}
    for cell in sorted(there.keys() - stale):
        try:
            footers[cell] = read_footer(files, cell, there[cell])
        except (Damaged, NotFound) as error:
            log.error("damaged", key=cell.key, why=error.message)
    return footers, {cell: there[cell] for cell in there.keys() & stale}


def _write(
    files: Objects,
    table: Table,
    pixels: Pixels,
    kept: Mapping[Cell, Pixel],
    ids: pa.Array,
    rights: Rights,
) -> dict[Cell, Pixel]:
    """Write pixels; returns those that have objects with points.

    A pixel in `kept` also keeps the objects of its file that are none of `ids`. If
    its file is not what was written, all its objects are read from the store.
    """
    written, damaged = dict[Cell, Pixel](), Pixels()
    cells = [*pixels]
    rows = [_of(pixels[cell], ids) if cell in kept else pixels[cell] for cell in cells]
    for some, points in points_of(table, rows) if rows else ():
        found = with_curves([rows[at] for at in some], rights.rows(points))
        for cell, here in zip(cells[some.start : some.stop], found, strict=True):
            if cell in kept:
                try:
                    before = read_pixel(files, cell, kept[cell])
                except (Damaged, NotFound) as error:
                    log.error("damaged", key=cell.key, why=error.message)
                    damaged[cell] = pixels[cell]
                    continue
                before = before.filter(pc.invert(pc.is_in(before["object_id"], ids)))
                here = pa.concat_tables([here, before.cast(here.schema)]).sort_by(ORDER)
            if here.num_rows:
                written[cell] = write_pixel(files, cell, here)
    if damaged:
        written |= _write(files, table, damaged, {}, ids, rights)
    return written


def _of(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows["object_id"], ids))


def _is_new(part: RunInfo, before: State) -> bool:
    """Whether a part may have points that the catalogue lacks.

    A merged run may have the points of an archive, which have no offsets: of a run that was not
    there before.
    """
    if part.key in before.runs:
        return False
    names = {name.run for key in before.runs if (name := RunName.parse(key))}
    is_known = bool(part.coverage) and names.issuperset(part.inputs)
    return not is_known or bool(part.coverage - before.coverage)


def _ids(objects: Objects, parts: list[RunInfo]) -> pa.Array:
    """The ids of the objects that these parts have points of."""
    found = [pa.array([], pa.string())]
    for part in parts:
        try:
            ids = read_columns(objects, part.object, ["object_id"])["object_id"]
        except Damaged as error:
            raise Damaged(f"{error.message}; the catalogue would lack its points") from None
        found.append(ids.unique())
    return pa.concat_arrays(found).unique()
