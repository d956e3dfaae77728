"""How a response is written: JSON, CSV, Parquet, Arrow, VOTable, tar."""

__all__ = [
    "completeness",
    "cone_writers",
    "datalink",
    "light_curves",
    "votable",
    "writers",
]
