"""Merged packs of images: the bytes that a pack of all their rows has."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.alerts.columns import CUTOUT, KINDS, THUMBNAIL
from stampede.errors import Damaged
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.kinds import read_named
from stampede.store.packs.merged_images import Part, merge_cutouts, merge_thumbnails
from stampede.store.packs.pack import Pack, inputs_in, read_content, read_rows, write_pack
from stampede.store.packs.pack_name import Merged
from stampede.store.runs.schema import CUTOUT_PACKS, THUMBNAIL_PACKS, PackSpec
from tests.support.alerts.fits_files import fits_file, source, ztf_source
from tests.support.store.rows import cutout, table

MERGED = Merged(1, 60000, "")


def psf(number: int) -> bytes:
    """A file whose last HDU is cut off: many have the same one."""
    return fits_file(
        fits.PrimaryHDU(source(8, seed=1)), fits.ImageHDU(source(12, seed=number), name="PSFIMAGE")
    )


FILES = [None, b"", b"x" * 300, ztf_source(1), psf(1), psf(2), psf(2)[:2880] + psf(1)[2880:]]


def part(pack: Pack, spec: PackSpec, wanted: Sequence[bool] | None = None) -> Part:
    content = read_content(pack.data, spec, pack.key)
    mask = [True] * content.rows.num_rows if wanted is None else wanted
    return Part(content, np.array(mask, bool))


def merge(packs: Sequence[Pack], spec: PackSpec = CUTOUT_PACKS) -> Pack:
    function = merge_cutouts if spec is CUTOUT_PACKS else merge_thumbnails
    return function([part(pack, spec) for pack in packs], [1], MERGED, [p.key for p in packs])


def coverage(number: int) -> Coverage:
    return Coverage.of({("ztf", 0): range(10 * number, 10 * number + 5)})


messages = st.tuples(
    st.integers(0, 12),
    st.sampled_from([None, 0, 7, 2**32 - 1]),
    st.lists(st.integers(0, len(FILES) - 1), min_size=3, max_size=3),
)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.lists(messages, min_size=1, max_size=6), min_size=1, max_size=5))
def test_a_merged_pack_has_the_bytes_of_a_pack_of_all_rows(batches: list) -> None:
    known: dict[tuple, list] = {}
    packs, all_rows = [], []
    for number, batch in enumerate(batches):
        rows = [
            cutout(alert_id, kind, FILES[file]) | {"message_crc32": message}
            # A message has the same files wherever it is.
            for alert_id, message, files in batch
            for kind, file in zip(KINDS, known.setdefault((alert_id, message), files), strict=True)
        ]
        all_rows += rows
        packs.append(write_pack(table(rows, CUTOUT), coverage(number), programids=[1]))
    whole = Coverage.union(coverage(number) for number in range(len(batches)))
    keys = [pack.key for pack in packs]
    expected = write_pack(table(all_rows, CUTOUT), whole, CUTOUT_PACKS, [1], MERGED, keys)
    merged = merge(packs)
    assert merged.data.equals(expected.data)
    assert (merged.key, merged.sha256) == (expected.key, expected.sha256)
    assert merged.locations.equals(expected.locations)
    again, held = read_named(merged.data, merged.key)
    assert again.locations.equals(merged.locations)
    assert held == whole
    # The same packs in another order give the same bytes: so two compactors write one object.
    assert merge(packs[::-1]).key == merged.key


def test_only_messages_that_are_wanted_are_taken() -> None:
    rows = [
        cutout(alert, kind, psf(alert) if kind != "template" else None)
        for alert in range(4)
        for kind in KINDS
    ]
    pack = write_pack(table(rows, CUTOUT), coverage(0))
    wanted = [row["alert_id"] in (1, 3) for row in rows]
    merged = merge_cutouts([part(pack, CUTOUT_PACKS, wanted)], [], MERGED, [pack.key])
    chosen = [row for row in rows if row["alert_id"] in (1, 3)]
    # It says too little rather than too much: the other alerts' offsets are in the pack as stored.
    expected = write_pack(table(chosen, CUTOUT), Coverage(), CUTOUT_PACKS, [], MERGED, [pack.key])
    assert merged.data.equals(expected.data)


def test_thumbnails() -> None:
    rows = [
        dict.fromkeys(THUMBNAIL.names)
        | {"alert_id": n, "survey": "ztf", "object_id": "Z", "mjd": 61000.5}
        | {"png": b"png" * n, "drawn_from": n}
        for n in range(9)
    ]
    packs = [
        write_pack(table(rows[first::3], THUMBNAIL), coverage(first), THUMBNAIL_PACKS)
        for first in range(3)
    ]
    merged = merge(packs, THUMBNAIL_PACKS)
    assert merged.key.startswith("thumbnails/61000/merged1-60000-all-")
    assert read_rows(merged.data, merged.key)[0].to_pylist() == rows


def test_the_footer_names_what_was_merged() -> None:
    packs = [write_pack(table([cutout(n, "science", b"x")], CUTOUT), coverage(n)) for n in (1, 2)]
    merged = merge(packs)
    file = read_content(merged.data, CUTOUT_PACKS, merged.key).file
    assert inputs_in(merged.key, file) == {pack.key for pack in packs}
    assert inputs_in("x", read_content(packs[0].data).file) == frozenset()


def test_a_page_of_two_messages_is_damage() -> None:
    """As only a foreign writer makes it: the page would be copied with both."""
    pack = write_pack(table([cutout(1, kind, b"x") for kind in KINDS], CUTOUT), coverage(0))
    content = read_content(pack.data, CUTOUT_PACKS, pack.key)
    other = content.rows.set_column(0, "alert_id", pa.array([1, 1, 2], pa.int64()))
    with pytest.raises(Damaged, match="several messages"):
        merge_cutouts(
            [Part(content._replace(rows=other), np.ones(3, bool))], [], MERGED, [pack.key]
        )
