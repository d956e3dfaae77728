"""How an answer is written: JSON, CSV, Parquet, Arrow, VOTable, tar."""

__all__ = [
    "cone_writers",
    "lacks",
    "light_curves",
    "votable",
    "writers",
]
