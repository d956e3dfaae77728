"""A HATS catalogue of the store: the objects, each with its light curve, by HEALPix pixel.

The format is that of the IVOA note HATS 1.0 (https://www.ivoa.net/documents/Notes/HATS/): a Parquet
file for each pixel. The light curve is a struct of lists, which nested-pandas takes for a table.
Later calls write only the pixels of objects that have new points.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.columns import DETECTION
from stampede.alerts.healpix import cells_of
from stampede.alerts.positions import CELLS, positions_of
from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound, SetupError, StampedeError
from stampede.handlers.hats.files import (
    INDEX,
    INDEX_ORDER,
    Pixel,
    Published,
    State,
    claim,
    finish,
    key_of,
    read_footer,
    read_pixel,
    read_state,
    write_pixel,
)
from stampede.handlers.hats.points import points_of
from stampede.store.integrity.verified_objects import read_columns
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import first_site, open_objects, open_store
from stampede.store.parquet.checksums import FileMetaData
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.range_lookup import Ranges, lacking, rows_in
from stampede.store.tables.table import Table
from stampede.telemetry import read_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

MOST_OBJECTS = 10_000
"""Objects in a pixel, which is made in memory: with 100 points each 200 MB."""
FINEST = 12
"""Order of the smallest pixels, of 50 arcsec."""
POINTS = [field for field in DETECTION if field.name not in ("object_id", "survey", "withdrawn")]

READ_IDS = 10_000
"""Objects whose points are looked up at once."""
_DERIVE = (
    " of points in `detections`, and the catalogue would lack objects: `stampede reconcile` "
    "derives them; then publish again"
)

Pixels = dict[int, pa.Table]


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
        places = _places(positions, rights)
        ids = _ids(objects, [part for part in parts if not before or _is_new(part, before)])
        _check_objects(detections, places, ids, rights)
        where = _latest(places)
        if not where.num_rows:
            raise SetupError("the store has no objects with a position: nothing to publish")
        order = order_of(where[INDEX].to_numpy(), most)
        pixels = _by_pixel(where, order)
        footers, kept = _kept(files, before, order, pixels, places, ids)
        claim(files)
        todo = {n: pixels[n] for n in sorted(pixels.keys() - footers.keys())}
        made = _write(files, detections, order, todo, kept, ids, rights)
        stay = {n: before.pixels[n] for n in footers} if before else {}
        footers |= {n: read_footer(files, order, n, pixel) for n, pixel in made.items()}
        runs = frozenset(part.key for part in parts)
        state = State(order, stay | made, runs, coverage, programids)
        return finish(files, name, state, footers, len(made))
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


def order_of(cells: np.ndarray, most: int) -> int:
    """The least order at which no pixel has more than `most` of these cells of order 29."""
    for order in range(FINEST):
        counts = np.unique(cells >> 2 * (INDEX_ORDER - order), return_counts=True)[1]
        if counts.max(initial=0) <= most:
            return order
    return FINEST


def _places(table: Table, rights: Rights) -> pa.Table:
    """Every place at which an object was seen, by object; the latest first."""
    everywhere = Ranges(np.array([0]), np.array([CELLS]))
    found = [rights.rows(rows) for rows in rows_in(table, everywhere)]
    _check(table, everywhere)
    rows = pa.concat_tables(found) if found else table.spec.no_rows
    order = [(name, "ascending") for name in ("object_id", "survey")]
    order += [(name, "descending") for name in ("last_mjd", "detections", "healpix")]
    rows = rows.sort_by(order).select(["object_id", "survey", "ra", "dec"])
    cells = cells_of(rows["ra"].to_numpy(), rows["dec"].to_numpy(), INDEX_ORDER)
    return rows.add_column(0, INDEX, pa.array(cells.astype(np.int64)))


def _latest(places: pa.Table) -> pa.Table:
    """Of each object the latest place, by cell; an object that moves has several."""
    first = np.ones(places.num_rows, bool)
    if places.num_rows:
        ids, surveys = places["object_id"].combine_chunks(), places["survey"].combine_chunks()
        same = pc.and_(pc.equal(ids[1:], ids[:-1]), pc.equal(surveys[1:], surveys[:-1]))
        first[1:] = ~np.asarray(same)
    return places.filter(pa.array(first)).sort_by(INDEX)


def _check(table: Table, ranges: Ranges) -> None:
    for key, why in lacking(table, ranges).items():
        raise Damaged(f"{key}: {why}; the catalogue would lack its objects")


def _by_pixel(rows: pa.Table, order: int) -> Pixels:
    """The rows of each pixel; they are sorted by cell."""
    numbers = rows[INDEX].to_numpy() >> 2 * (INDEX_ORDER - order)
    distinct, starts = np.unique(numbers, return_index=True)
    ends = np.append(starts, len(numbers))[1:]
    cut = zip(distinct, starts, ends, strict=True)
    return {int(number): rows.slice(begin, end - begin) for number, begin, end in cut}


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
    files: Objects,
    before: State | None,
    order: int,
    pixels: Pixels,
    places: pa.Table,
    ids: pa.Array,
) -> tuple[dict[int, FileMetaData], dict[int, Pixel]]:
    """The footers of the pixels that stay as they are, and what is known of those that gain points.

    A pixel whose footer is not as it was written is neither: it is made anew.
    """
    footers: dict[int, FileMetaData] = {}
    if before is None or before.order != order:
        return footers, {}
    cells = places.filter(pc.is_in(places["object_id"], ids))[INDEX].to_numpy()
    stale = set((cells >> 2 * (INDEX_ORDER - order)).tolist())
    there = {n: pixel for n, pixel in before.pixels.items() if n in pixels}
    for number in there.keys() - stale:
        try:
            footers[number] = read_footer(files, order, number, there[number])
        except (Damaged, NotFound) as error:
            log.error("damaged", key=key_of(order, number), why=error.message)
    return footers, {n: there[n] for n in there.keys() & stale}


def _write(
    files: Objects,
    table: Table,
    order: int,
    pixels: Pixels,
    kept: Mapping[int, Pixel],
    ids: pa.Array,
    rights: Rights,
) -> dict[int, Pixel]:
    """Write pixels; returns those that have objects with points.

    A pixel in `kept` also keeps the objects of its file that are none of `ids`. If
    its file is not what was written, all its objects are read from the store.
    """
    written, damaged = dict[int, Pixel](), Pixels()
    new = {n: _of(rows, ids) if n in kept else rows for n, rows in pixels.items()}
    numbers, rows = [*new], [*new.values()]
    for some, points in points_of(table, rows) if rows else ():
        points = rights.rows(points)
        found = _with_curves(pa.concat_tables([rows[at] for at in some]), points)
        made = _by_pixel(found, order)
        for number in numbers[some.start : some.stop]:
            here = made.get(number, found.slice(0, 0))
            if number in kept:
                try:
                    before = read_pixel(files, order, number, kept[number])
                except (Damaged, NotFound) as error:
                    log.error("damaged", key=key_of(order, number), why=error.message)
                    damaged[number] = pixels[number]
                    continue
                before = before.filter(pc.invert(pc.is_in(before["object_id"], ids)))
                here = pa.concat_tables([here, before.cast(here.schema)]).sort_by(INDEX)
            if here.num_rows:
                written[number] = write_pixel(files, order, number, here)
    if damaged:
        written |= _write(files, table, order, damaged, {}, ids, rights)
    return written


def _of(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows["object_id"], ids))


def _with_curves(rows: pa.Table, points: pa.Table) -> pa.Table:
    """Objects with their points, by time, as `read` gives them; those that have any."""
    keys = ["object_id", "survey"]
    points = points.sort_by([(name, "ascending") for name in (*keys, "mjd", "source_id")])
    numbers = points.select(keys).append_column("row", pa.array(np.arange(points.num_rows)))
    groups = numbers.group_by(keys, use_threads=False).aggregate([("row", "min"), ("row", "count")])
    rows = rows.join(groups, keys, join_type="inner", use_threads=False).sort_by(INDEX)
    counts = rows["row_count"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)])
    begins = np.repeat(rows["row_min"].to_numpy() - offsets[:-1], counts)
    points = points.take(pa.array(begins + np.arange(offsets[-1])))
    lists = [
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), points[field.name].combine_chunks())
        for field in POINTS
    ]
    curve = pa.StructArray.from_arrays(lists, [field.name for field in POINTS])
    columns = [rows[name] for name in (INDEX, "object_id", "survey", "ra", "dec")]
    return pa.table(
        [*columns, rows["row_count"], curve],
        [INDEX, "object_id", "survey", "ra", "dec", "points", "lightcurve"],
    )


def _is_new(part: RunInfo, before: State) -> bool:
    if part.key in before.runs:
        return False
    return not part.coverage or bool(part.coverage - before.coverage)


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
