"""`tools/checked` finds native code that writes beyond its memory, whoever gave it the memory."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
CHECKED = Path(__file__).parents[2] / "tools" / "checked"
# Each takes memory and gives it back, and writes `BYTE` one byte behind it, if there is one.
C = """
import ctypes
def plant(allocate, free):
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    memory = allocate(24)
    ctypes.memset(memory + 24, 0x41, BYTES)
    free(memory)
"""
PYTHON = f"{C}plant(ctypes.pythonapi.PyMem_Malloc, ctypes.pythonapi.PyMem_Free)"
GLIBC = f"{C}plant(ctypes.pythonapi.PyMem_RawMalloc, ctypes.pythonapi.PyMem_RawFree)"
ARROW = """
import ctypes
import pyarrow
buffer = pyarrow.allocate_buffer(64)
ctypes.memset(buffer.address + 64, 0x41, BYTES)
del buffer
"""
# What Python checks itself, glibc would not see, so its own memory is glibc's in the second.
PLANTED = {
    "Python": ([], PYTHON, b"bad trailing pad byte"),
    "glibc": (["env", "PYTHONMALLOC=malloc"], GLIBC, b"free(): invalid pointer"),
    "Arrow": ([], ARROW, b"Arrow Fatal Error"),
}


@pytest.mark.parametrize(("prefix", "code", "words"), PLANTED.values(), ids=PLANTED)
def test_a_planted_overrun_ends_the_process(prefix: list[str], code: str, words: bytes) -> None:
    def run(size: int) -> subprocess.CompletedProcess[bytes]:
        program = code.replace("BYTES", str(size))
        command = [str(CHECKED), *prefix, sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, timeout=60, check=False)

    assert run(0).returncode == 0
    overrun = run(1)
    assert (overrun.returncode, words in overrun.stderr) == (-signal.SIGABRT, True), overrun.stderr


def test_new_and_freed_memory_is_no_zeros() -> None:
    """So code that reads memory which nothing wrote gives another response."""
    program = C.partition("def")[0] + (
        "api = ctypes.pythonapi\n"
        "api.PyMem_RawMalloc.restype = ctypes.c_void_p\n"
        "print(set(ctypes.string_at(api.PyMem_RawMalloc(4000), 4000)))"
    )
    command = [str(CHECKED), "env", "PYTHONMALLOC=malloc", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert done.stdout == b"{%d}\n" % (0xFF ^ 165)
