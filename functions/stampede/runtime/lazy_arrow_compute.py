"""`pyarrow.compute`, imported when a function of it is used for the first time.

Its import makes and documents a wrapper for each of Arrow's functions: 30 ms of CPU, which the
first cutout of a process does not need (docs/adr/0050-starts.md).
"""

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    found = globals()[name] = getattr(pyarrow.compute, name)
    return found
