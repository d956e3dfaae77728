"""Cutouts of many alerts as one array, from the bucket, without the server."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from stampede_client.bucket import Bucket, reaching
from stampede_client.cutout_places import places_shown
from stampede_client.cutouts import KINDS
from stampede_client.errors import BadInput
from stampede_client.pack_reader import Place, heads
from stampede_client.planes import Planes
from stampede_client.queries import checked_alert

THREADS = 1 + (os.cpu_count() or 1)
"""Packs that are read at once: one waits for the store while another is unpacked."""
AT_ONCE = 32
"""Images of which numpy makes pixels at once: half a megabyte, which a core's cache holds."""


class Images(NamedTuple):
    """Cutouts as one array, by alert id, survey and kind (science, template, difference).

    Attributes
    ----------
    planes
        Pixels, float32, shape (n, rows, columns), in the survey's units and orientation, row 0 at
        the bottom as in FITS. NaN where there is no value.
    alert_ids
        int64, shape (n,).
    surveys, kinds
        Text, shape (n,).
    missing
        Ids that were asked for and have no image: not stored, or never sent.
    skipped
        Why images were left out, with ``errors="skip"``: of each a line with its id and kind.
    gone
        Ids whose images were stored, in packs that are not there: past their retention, or lost.
    """

    planes: np.ndarray
    alert_ids: np.ndarray
    surveys: np.ndarray
    kinds: np.ndarray
    missing: list[int]
    skipped: list[str]
    gone: list[int]


def images(
    store: str,
    filesystem: fs.FileSystem | None = None,
    *,
    ids: Iterable[int | str] | None = None,
    night: int | None = None,
    kinds: Iterable[str] = KINDS,
    size: int | None = None,
    errors: Literal["raise", "skip"] = "raise",
) -> Images:
    """Cutouts of many alerts, read from the packs in the bucket.

    All pixels must fit into memory: 16 KB for an image of 63 by 63.

    Parameters
    ----------
    store, filesystem
        The bucket, as for `detections`.
    ids
        diaSourceIds and candids; or give `night`.
    night
        Integer MJD: all alerts in the packs of ``packs/<night>/``.
    kinds
        Some of science, template and difference.
    size
        Rows and columns of each plane: a larger image is cut, and a smaller one surrounded by NaN,
        about its middle. Without it all images must have one shape.
    errors
        Whether an image that is damaged, or that cannot be read as FITS, ends the call, and rows
        of the table `cutouts` that cannot be read do; otherwise these are an `IncompleteWarning`.

    Raises
    ------
    BadInput
        If an argument cannot be used, or the images differ in shape and `size` is not given.
    Damaged
        If an image is damaged; its bytes are compared with their CRC-32 first.
    Incomplete
        If the places of images that may be asked for are damaged or lost.
    Unavailable
        If the store fails.
    """
    chosen = _checked_kinds(kinds)
    if (ids is None) == (night is None):
        raise BadInput("give either ids or night")
    if size is not None and size < 1:
        raise BadInput(f"size is {size}; give the number of rows, or leave it out")
    bucket = Bucket(store, filesystem, errors)
    if ids is None:
        asked: list[int] = []
        wanted = pc.starts_with(pc.field("pack"), f"packs/{night}/")
    else:
        asked = sorted({int(checked_alert(one)) for one in ids})
        wanted = pc.field("alert_id").isin(pa.array(asked, pa.int64()))
    rows, gone = places_shown(bucket, None if ids is None else asked, wanted, chosen)
    planes = Planes(rows.num_rows, size)
    _fill(planes, bucket, rows)
    if planes.failed and errors == "raise":
        raise planes.failed[min(planes.failed)]
    return _result(planes, rows, asked, gone)


def _fill(planes: Planes, bucket: Bucket, rows: pa.Table) -> None:
    def read(pack: str, some: pa.Table) -> None:
        places = [*map(Place, *(some[name].to_pylist() for name in Place._fields))]
        path = f"{bucket.root}/{pack}"
        with reaching(bucket.root), bucket.filesystem.open_input_file(path) as file:
            reading = heads(file, places)
            while batch := [*islice(reading, AT_ONCE)]:
                planes.read(batch)

    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(read, pack, places) for pack, places in _by_pack(rows)]
        try:
            for one in running:
                one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _by_pack(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Each pack, and the rows of its cutouts by their places; `number` is the row in `rows`."""
    numbered = rows.append_column("number", pa.array(np.arange(rows.num_rows)))
    order = [(name, "ascending") for name in ("pack", "page_offset", "start")]
    ordered = numbered.sort_by(order).combine_chunks()
    runs = pc.run_end_encode(ordered["pack"].combine_chunks())
    start = 0
    for pack, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield pack, ordered.slice(start, end - start)
        start = end


def _result(planes: Planes, rows: pa.Table, asked: list[int], gone: np.ndarray) -> Images:
    pixels = planes.pixels
    alert_ids = rows["alert_id"].to_numpy()
    if planes.failed:
        kept = np.ones(rows.num_rows, bool)
        kept[list(planes.failed)] = False
        pixels = pixels if len(pixels) else np.empty((rows.num_rows, 0, 0), np.float32)
        pixels, rows, alert_ids = pixels[kept], rows.filter(pa.array(kept)), alert_ids[kept]
    return Images(
        pixels,
        alert_ids,
        rows["survey"].to_numpy(),
        rows["kind"].to_numpy(),
        np.setdiff1d(np.setdiff1d(np.array(asked, np.int64), alert_ids), gone).tolist(),
        [str(planes.failed[number]) for number in sorted(planes.failed)],
        gone.tolist(),
    )


def _checked_kinds(kinds: Iterable[str]) -> list[str]:
    chosen = [kinds] if isinstance(kinds, str) else list(kinds)
    for kind in chosen:
        if kind not in KINDS:
            raise BadInput(f"{kind!r} is no kind of cutout; use some of {', '.join(KINDS)}")
    return chosen
