"""Every tool gives each file back as it was sent, however it is cut and whatever it is."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from stampede.alerts.columns import CUTOUT, CUTOUT_LOCATION, KINDS
from stampede.errors import Damaged
from stampede.images.fits import gzip_file
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs import images as pack_images
from stampede.store.packs import pack as packs
from stampede.store.packs import stored_images
from stampede.store.packs.pack import Pack, read_pack, write_pack
from stampede_local.demo import oracle
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.alerts.fits_files import fits_file, lsst, source, ztf
from tests.support.alerts.made_alerts import REAL, real_alerts
from tests.support.store.located import image_in
from tests.support.store.rows import Row, cutout, table

PSF = np.random.default_rng(1).normal(size=(41, 41))
Files = dict[tuple[int, str], bytes | None]


def hdus(*images: np.ndarray | None, **cards: str) -> bytes:
    """A FITS file of these images, and cards in its first header."""
    first, *rest = images
    primary = fits.PrimaryHDU(first)
    primary.header.update(cards)
    return fits_file(primary, *map(fits.ImageHDU, rest))


ODD: dict[str, Sequence[bytes | None]] = {
    "three HDUs": [hdus(source(30, seed=n), source(30), PSF) for n in range(3)],
    "no PSF": [hdus(source(30, seed=n)) for n in range(3)],
    "two HDUs, the first empty": [hdus(None, PSF)] * 3,
    "headers that differ": [hdus(source(30), PSF, OBJECT=name) for name in "ABC"],
    "an HDU of no bytes": [hdus(source(30), None)] * 3,
    "tails that differ": [hdus(source(30), PSF + n) for n in range(3)],
    "not FITS": [b"GIF89a" * 99, b"", b"SIMPLE"],
    "cut off": [lsst(source(30))[:size] for size in (100, 2880, -1)],
    "bytes behind the end": [lsst(source(30)) + more for more in (b"x", b"XTENSION=" * 99, b"")],
    "gzipped": [ztf(source()), gzip.compress(lsst(source(30)), mtime=0), lsst(source(30))],
    "not sent": [None, lsst(source(30)), None],
    "none sent": [None, None, None],
}


def read_back(pack: Pack, path: Path) -> dict[str, Files]:
    """The files in a pack by each reader."""
    path.write_bytes(pack.data)
    query = f"SELECT alert_id, kind, fits || tail FROM '{path}'"
    arrow = pq.read_table(path, page_checksum_verification=True).to_pylist()
    return {
        "DuckDB": {(alert, kind): file for alert, kind, file in duckdb.sql(query).fetchall()},
        "Arrow": joined(arrow),
        "Polars": joined(polars.read_parquet(path).to_dicts()),
        "locations": {
            (place["alert_id"], place["kind"]): image_in(pack.data, place)
            for place in pack.locations.to_pylist()
        },
    }


def joined(rows: list[Row]) -> Files:
    files = {(row["alert_id"], row["kind"]): row["fits"] for row in rows}
    for row in rows:
        assert (row["fits"] is None) == (row["tail"] is None)
        if row["fits"] is not None:
            files[row["alert_id"], row["kind"]] += row["tail"]
    return files


@pytest.mark.parametrize("names", [*((name,) for name in ODD), (*ODD,)], ids=" ".join)
def test_every_file_comes_back_as_it_was_sent(names: tuple[str, ...], tmp_path: Path) -> None:
    kinds = ("difference", "science", "template")
    rows = [
        cutout(alert, kind, file)
        for alert, name in enumerate(names)
        for kind, file in zip(kinds, ODD[name], strict=True)
    ]
    sent = {(row["alert_id"], row["kind"]): row["fits"] for row in rows}
    pack = write_pack(table(rows, CUTOUT), Coverage())
    for reader, found in read_back(pack, tmp_path / "pack.parquet").items():
        assert found == sent, reader
    assert read_pack(pack.data)[0].locations.equals(pack.locations)
    believed, _ = read_pack(pack.data, key=pack.key, table_rows=lambda ids: pack.locations)
    assert believed.locations.equals(pack.locations)


PLACES = [
    name
    for name in CUTOUT_LOCATION.names[CUTOUT_LOCATION.get_field_index("page_offset") :]
    if name not in ("crc32", "message_crc32")
]


@pytest.mark.parametrize("name", [*PLACES, "pack", "kind"])
def test_a_table_that_contradicts_the_pages_is_not_believed(name: str) -> None:
    """Then the pages are read, and scrub finds that the row is wrong."""
    rows = [
        cutout(alert, kind, hdus(source(30, seed=alert), PSF + alert))
        for alert in range(3)
        for kind in sorted(KINDS)
    ]
    pack = write_pack(table(rows, CUTOUT), Coverage())
    other = {"pack": None, "kind": "other"}
    for row in range(9):
        claims = pack.locations.to_pylist()
        old = claims[row][name]
        claims[row][name] = other[name] if name in other else old + 1
        wrong = pa.Table.from_pylist(claims, pack.locations.schema)
        found, _ = read_pack(pack.data, key=pack.key, table_rows=lambda ids, rows=wrong: rows)
        assert found.locations.equals(pack.locations), row
    for some in (pack.locations.slice(1), pa.concat_tables([pack.locations] * 2), None):
        found, _ = read_pack(pack.data, key=pack.key, table_rows=lambda ids, rows=some: rows)
        assert found.locations.equals(pack.locations)


def test_sizes_that_make_up_for_each_other_are_found_by_where_the_next_file_begins() -> None:
    rows = [cutout(1, kind, bytes([number]) * 900) for number, kind in enumerate(sorted(KINDS))]
    pack = write_pack(table(rows, CUTOUT), Coverage())
    claims = pack.locations.to_pylist()
    claims[0]["length"], claims[1]["length"] = 901, 899
    wrong = pa.Table.from_pylist(claims, pack.locations.schema)
    found, _ = read_pack(pack.data, key=pack.key, table_rows=lambda ids: wrong)
    assert found.locations.equals(pack.locations)


def test_a_table_that_fits_the_pages_is_believed_without_reading_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [cutout(1, kind, hdus(source(30), PSF)) for kind in sorted(KINDS)]
    rows.append(cutout(2, "science", None))
    pack = write_pack(table(rows, CUTOUT), Coverage())
    claims = pack.locations.to_pylist()
    claims[1]["crc32"] = 7
    claimed = pa.Table.from_pylist(claims, pack.locations.schema)
    monkeypatch.setattr(stored_images, "_stored_heads", None)
    found, _ = read_pack(pack.data, key=pack.key, table_rows=lambda ids: claimed)
    assert found.locations.equals(claimed)
    assert found.key == pack.key


def test_an_image_without_a_number_of_its_tail_is_refused(monkeypatch) -> None:
    def without(files: pa.Array, messages: np.ndarray) -> pack_images.Cutouts:
        found = pack_images.cut(files, messages)
        return found._replace(numbers=pa.array([None, *found.numbers.to_pylist()[1:]], pa.int32()))

    rows = [cutout(1, kind, fits=lsst(source(30))) for kind in sorted(KINDS)]
    monkeypatch.setattr(packs, "cut", without)
    pack = write_pack(table(rows, CUTOUT), Coverage())
    with pytest.raises(Damaged, match="tail"):
        read_pack(pack.data)


def test_a_tail_that_alerts_share_is_stored_once() -> None:
    shared = [cutout(n, "science", hdus(source(30, seed=n), PSF)) for n in range(10)]
    own = [cutout(n, "science", hdus(source(30, seed=n), PSF + n)) for n in range(10)]
    sizes = [write_pack(table(rows, CUTOUT), Coverage()).data.size for rows in (shared, own)]
    assert sizes[1] - sizes[0] > 8 * PSF.nbytes * 0.9
    places = write_pack(table(shared, CUTOUT), Coverage()).locations
    assert len(places["tail_offset"].unique()) == 1


@pytest.mark.skipif(not REAL.is_dir(), reason="the real alerts (../shared/data) are not here")
@pytest.mark.parametrize(("survey", "most"), [("lsst", 0.55), ("ztf", 1.01)])
def test_real_alerts_come_back_byte_for_byte(survey: str, most: float, tmp_path: Path) -> None:
    messages, sent = [], {}
    for message in real_alerts():
        name, record = oracle.read_record(message)
        if name == survey:
            messages.append(message)
            alert = oracle.head(message)["alert_id"]
            for kind in KINDS:
                field = record[f"cutout{kind.title()}"]
                sent[alert, kind] = field["stampData"] if isinstance(field, dict) else field
    pack = write_pack(make_batch_decoder(tmp_path).cutouts(messages).rows, Coverage())
    for reader, found in read_back(pack, tmp_path / "pack.parquet").items():
        assert found == sent, reader
    gzipped = sum(len(gzip_file(file)) for file in sent.values() if file)
    assert pack.data.size <= most * gzipped  # Rubin's are of one visit and detector
