"""What the store holds: its tables and its kinds of pack, with columns, keys and precedence."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from stampede.alerts import columns


@dataclass(frozen=True)
class TableSpec:
    """A table: its name, columns, primary key, and which version of a row wins."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    precedence: tuple[str, ...]
    ranges: tuple[tuple[str, str], ...] = ()
    """The columns that locate bytes of a pack: offset and length."""
    filtered: bool = False
    """Whether runs have filters of their leading keys: each run may have any of them."""

    @cached_property
    def no_rows(self) -> pa.Table:
        """A table without rows."""
        return self.schema.empty_table().replace_schema_metadata()

    @cached_property
    def leads_text(self) -> bool:
        """Whether the first key column has strings; otherwise it has int64."""
        return bool(pa.types.is_string(self.schema.field(self.leading).type))

    @property
    def leading(self) -> str:
        """The first key column, by which rows are looked up."""
        return self.key[0]

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns that decide between versions of a row, most important first."""
        rest = [name for name in self.schema.names if name not in self.key + self.precedence]
        return self.precedence + tuple(rest)


CUTOUTS = TableSpec(
    "cutouts",
    columns.CUTOUT_LOCATION,
    columns.CUTOUT_LOCATION_KEY,
    columns.CUTOUT_LOCATION_PRECEDENCE,
    (("page_offset", "page_length"), ("tail_offset", "tail_length")),
)
DETECTIONS = TableSpec(
    "detections",
    columns.DETECTION,
    columns.DETECTION_KEY,
    columns.DETECTION_PRECEDENCE,
    filtered=True,
)
THUMBNAILS = TableSpec(
    "thumbnails",
    columns.THUMBNAIL_LOCATION,
    columns.THUMBNAIL_KEY,
    columns.THUMBNAIL_PRECEDENCE,
    (("offset", "length"),),
)
PACKETS = TableSpec(
    "packets",
    columns.PACKET_LOCATION,
    columns.PACKET_KEY,
    columns.PACKET_PRECEDENCE,
    (("offset", "length"),),
)
POSITIONS = TableSpec(
    "positions",
    columns.POSITION,
    columns.POSITION_KEY,
    columns.POSITION_PRECEDENCE,
)
MOVING = TableSpec(
    "moving",
    columns.MOVING,
    columns.MOVING_KEY,
    columns.MOVING_PRECEDENCE,
)

# The tables that store alerts. The ledger accounts for every Kafka offset in each of them.
TABLES = {spec.name: spec for spec in (CUTOUTS, DETECTIONS)}
# `thumbnails`, `positions` and `moving` can be computed again; the coverage of `detections` implies
# that of `packets`.
ALL_TABLES = TABLES | {spec.name: spec for spec in (THUMBNAILS, PACKETS, POSITIONS, MOVING)}


@dataclass(frozen=True)
class PackSpec:
    """A kind of pack: its rows, the column with the image or packet, and the table of locations."""

    rows: TableSpec
    image: str
    locations: TableSpec

    @property
    def prefix(self) -> str:
        """First part of the packs' keys."""
        return self.rows.name


# Sorted so that the images of one message lie in one page. Of two images of one message the later
# wins, and any image wins against a null.
CUTOUT_PACKS = PackSpec(
    TableSpec("packs", columns.CUTOUT, columns.CUTOUT_KEY, ("mjd", "fits")),
    "fits",
    CUTOUTS,
)
THUMBNAIL_PACKS = PackSpec(
    TableSpec("thumbnails", columns.THUMBNAIL, columns.THUMBNAIL_KEY, ("mjd", "png")),
    "png",
    THUMBNAILS,
)
# Sorted so that packets which repeat each other's history lie side by side. All rows stay: those
# of one message sent twice differ in their Kafka position.
PACKET_PACKS = PackSpec(
    TableSpec("packets", columns.PACKET, ("object_id", "mjd", "alert_id", "survey"), ()),
    "packet",
    PACKETS,
)
PACK_SPECS = {spec.prefix: spec for spec in (CUTOUT_PACKS, THUMBNAIL_PACKS, PACKET_PACKS)}
