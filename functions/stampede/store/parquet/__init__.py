"""Parquet with a checksum for every byte that is read."""

__all__ = [
    "checksums",
    "object_footer",
    "pages",
    "partial_footers",
    "range_file",
    "thrift",
    "writer",
    "xxhash64",
    "zstd",
]
