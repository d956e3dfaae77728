"""Runs: immutable sorted Parquet objects with an index."""

__all__ = [
    "bloom_filters",
    "footer",
    "index_sections",
    "keys",
    "merge",
    "packed_coverage",
    "quarantine",
    "reader",
    "row_values",
    "run",
    "run_name",
    "schema",
    "section_files",
    "writer",
]
