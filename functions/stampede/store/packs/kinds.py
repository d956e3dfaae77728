"""Packs of every kind, told apart by their keys."""

from stampede.errors import Damaged
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import Pack, TableRows, read_pack
from stampede.store.packs.pack_name import night_of
from stampede.store.packs.packets import read_packets
from stampede.store.runs.schema import PACK_SPECS, PACKET_PACKS, PackSpec


def spec_of(key: str) -> PackSpec:
    """The kind of the pack of that key. Raises `Damaged` if it is not the key of a pack."""
    if night_of(key) is None:
        raise Damaged(f"{key} is not the name of a pack")
    return PACK_SPECS[key.partition("/")[0]]


def read_named(
    data: bytes | memoryview, key: str, table_rows: TableRows | None = None
) -> tuple[Pack, Coverage]:
    """The pack of that key, of any kind, as it was written.

    `table_rows` as for `read_pack`. Raises `Damaged` if it is not that.
    """
    spec = spec_of(key)
    if spec is PACKET_PACKS:
        pack, coverage = read_packets(data, key)
    else:
        pack, coverage = read_pack(data, spec, key, table_rows)
    if pack.key != key:
        raise Damaged(f"{key} does not hold the pack of that name: that is {pack.key}")
    return pack, coverage
