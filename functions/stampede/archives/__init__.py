"""Archives of light curves, from files into the tables of points and positions, beside alerts."""

__all__ = [
    "importer",
    "layouts",
    "names",
]
