"""What freed memory costs, and how much of it stays."""

import platform
import subprocess
import sys

import pytest

MEASURE = """
import resource
from stampede.allocator import keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

def page_faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bodies = [bytearray(176_000) for _ in range(count)]
    del bodies
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

page_faults(300)
by_default = page_faults(300)
keep_freed_memory()
page_faults(300)
kept = page_faults(300)
before = resident()
page_faults(3000)
print(by_default, kept, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of the GNU C library")
def test_alerts_use_the_memory_of_those_before_them_and_not_much_stays():
    run = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=60
    )
    by_default, kept, more = map(int, run.stdout.split())
    assert by_default > 10_000  # 300 bodies of 43 pages
    assert kept < 500
    assert more < 130  # MB of the 528 that were freed
