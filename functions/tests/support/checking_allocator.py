"""An environment in which native code that writes beyond its memory ends its process."""

ENVIRONMENT = {
    # Python puts known bytes around each block of its own, and looks at them when it is freed.
    "PYTHONMALLOC": "debug",
    # So does glibc with the blocks of C and C++. Since 2.34 that is a library of its own.
    "LD_PRELOAD": "libc_malloc_debug.so.0",
    "MALLOC_CHECK_": "3",
    # Memory that is new or freed is filled, so that what reads it reads no zeros.
    "MALLOC_PERTURB_": "165",
    # Arrow has an allocator of its own, which checks nothing.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
