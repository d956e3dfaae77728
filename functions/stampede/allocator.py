"""Keeps memory that bodies of alerts left, for the next ones."""

import ctypes

KEPT_BYTES = 128 << 20  # at most so many free bytes stay with the process
# mallopt(3) of the GNU C library.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_MMAP_THRESHOLD = 32 << 20


def keep_freed_memory() -> None:
    """Let the C library keep freed memory, up to `KEPT_BYTES`; without the GNU C library nothing.

    By default it gives each large block back to the kernel, which then has to clear a page for
    every 4 KB of the next alert. What that costs is in docs/adr/0029-bodies.md.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_MMAP_THRESHOLD, _MOST_MMAP_THRESHOLD)
    mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
