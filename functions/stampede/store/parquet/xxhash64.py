"""XXH64 with the seed 0, the hash of Parquet's Bloom filters, of one key or of many.

Parquet: https://github.com/apache/parquet-format/blob/master/BloomFilter.md.
"""

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

LONGEST = 256
"""Bytes of a key that are hashed; no survey has ids as long."""


def hash_key(key: int | str) -> int:
    """The hash of a leading key: of its UTF-8, or of its 8 bytes as a little-endian number."""
    return xxh64_intdigest(
        key.encode()[:LONGEST] if isinstance(key, str) else key.to_bytes(8, "little", signed=True)
    )


def hash_keys(keys: pa.Array) -> np.ndarray:
    """The hash of each key, as `hash_key`: uint64, shape (keys,). They are strings or int64."""
    if pa.types.is_integer(keys.type):
        numbers = memoryview(keys.to_numpy().astype("<i8", copy=False).tobytes())
        hashes = (xxh64_intdigest(numbers[at : at + 8]) for at in range(0, len(numbers), 8))
    else:
        texts = keys.cast(pa.binary()).to_pylist()
        hashes = (xxh64_intdigest(text[:LONGEST]) for text in texts)
    return np.fromiter(hashes, np.uint64, len(keys))
