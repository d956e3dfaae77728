"""Merges rows: key order, one row per key, the same table for every order of arrival.

Of two versions of one row the greater wins, by the precedence columns and then by all others in
order. That is a total order on the bits of the values, so taking the greatest is commutative,
associative and idempotent. Null is below everything, NaN next, then -inf ... -0.0, 0.0 ... inf.
"""

import numpy as np
import pyarrow as pa

from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.runs.schema import TableSpec

_FEW = 16  # rows; numpy's way takes 0.2 ms for any small number, Python's 2 us a row
_NULL = -1  # below every `message_crc32` and `programid`, the columns of keys that may be null


def sort_unique(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """`rows` sorted by key, the winning version of each; `rows` itself if nothing has to change."""
    if rows.num_rows < 2:
        return rows
    if rows.num_rows <= _FEW and (few := _order_of_few(rows, spec.key)) is not None:
        return rows if few == [*range(len(few))] else rows.take(pa.array(few))
    rows = rows.combine_chunks()
    codes = _key_codes(rows, spec.key)
    order = np.lexsort(codes[::-1]) if _unsorted(codes) else np.arange(rows.num_rows)
    repeats = np.ones(rows.num_rows - 1, bool)
    for code in codes:
        ordered = code[order]
        repeats &= ordered[1:] == ordered[:-1]
    if repeats.any():
        order = _winners(rows, spec, order, repeats)
    elif np.array_equal(order, np.arange(len(order))):
        return rows
    return rows.take(pa.array(order))


def is_sorted(rows: pa.Table, spec: TableSpec) -> bool:
    """Whether `rows` are in the order of the key, one per key."""
    undecided = np.ones(max(0, rows.num_rows - 1), bool)
    for name in spec.key:
        if not undecided.any():
            return True
        column = one_array(rows[name])
        if column.null_count:
            column = pc.fill_null(column.cast(pa.int64()), _NULL)
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        if (undecided & pc.greater(before, after).to_numpy(zero_copy_only=False)).any():
            return False
        undecided &= pc.equal(before, after).to_numpy(zero_copy_only=False)
    return not undecided.any()


def _winners(rows: pa.Table, spec: TableSpec, order: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    """One row number per key, in key order; `repeats[i]` if order[i] and order[i+1] share a key."""
    group = np.concatenate([[0], np.cumsum(~repeats)])
    sizes = np.bincount(group)
    winner = order[np.cumsum(sizes) - 1]
    # Compare only keys with several versions. Drop a version that equals the next one.
    several = sizes[group] > 1
    order, group = order[several], group[several]
    same = group[1:] == group[:-1]
    differ = {name: same & _differ(rows[name], order) for name in spec.compared}
    keep = np.append(~same | np.logical_or.reduce([*differ.values()]), True)
    order, group = order[keep], group[keep]
    # Go through the columns that differ at all, until one version of each key is left.
    for name in [name for name in spec.compared if differ[name].any()]:
        first = np.append(True, group[1:] != group[:-1])
        if first.all():
            break
        code = order_codes(rows[name].take(pa.array(order)).combine_chunks())
        starts = np.flatnonzero(first)
        greatest = np.maximum.reduceat(code, starts)
        keep = code == np.repeat(greatest, np.diff(np.append(starts, len(group))))
        order, group = order[keep], group[keep]
    winner[group] = order
    return winner


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array.

    `combine_chunks` would copy even a single chunk: a quarter of the time to write a pack.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _differ(column: pa.ChunkedArray, order: np.ndarray) -> np.ndarray:
    """Whether each value of `order` but the last differs in any bit from the next."""
    if column.null_count == len(column):  # as the columns that only another survey has
        return np.zeros(max(0, len(order) - 1), bool)
    values = one_array(column)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif not pa.types.is_primitive(values.type):
        values = values.dictionary_encode().indices
    buffer, width = values.buffers()[1], values.type.bit_width // 8
    bits = np.frombuffer(buffer, f"u{width}")[values.offset :][order]
    differ: np.ndarray = bits[1:] != bits[:-1]
    if values.null_count:  # the bits under a null mean nothing
        valid = values.is_valid().to_numpy(zero_copy_only=False)[order]
        differ = differ & valid[1:] | (valid[1:] != valid[:-1])
    return differ


def order_codes(column: pa.Array) -> np.ndarray:
    """Numbers that sort as the values do, null below everything; equal only if the bits are equal.

    uint64, shape (n,), for comparing within this column only.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        codes = _float_codes(column)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        codes = pc.fill_null(column.cast(pa.int64()), 0).to_numpy().view(np.uint64)
        codes = codes ^ np.uint64(1 << 63)
    else:
        codes = _rank(column).astype(np.uint64)
    if column.null_count:
        # All 2^64 codes may be taken; ranks leave room for null below.
        codes = np.unique(codes, return_inverse=True)[1].astype(np.uint64) + np.uint64(1)
        codes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return codes


def _float_codes(column: pa.Array) -> np.ndarray:
    # Widening keeps the order and keeps all float32 distinct, a NaN's payload included.
    values = pc.fill_null(column, pa.scalar(0, column.type)).to_numpy()
    bits = values.astype(np.float64).view(np.uint64)
    sign = np.uint64(1 << 63)
    # IEEE 754 order: flip all bits of a negative number, the sign of a positive one ...
    codes: np.ndarray = np.where(bits & sign, ~bits, bits | sign)
    # ... and rotate so that the NaNs, which are at both ends, come first.
    codes = codes - (np.array(np.inf).view(np.uint64) + sign + np.uint64(1))
    return codes


def _rank(column: pa.Array) -> np.ndarray:
    """Rank of each string or binary among the distinct ones, int64; 0 for null."""
    encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    if len(encoded.dictionary) < 2:  # the rows of one object
        return np.zeros(len(column), np.int64)
    # pyarrow sorts strings by their UTF-8 bytes, as Parquet's statistics do.
    ranks = np.empty(len(encoded.dictionary), np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
    found: np.ndarray = ranks[encoded.indices.fill_null(0).to_numpy()]
    return found


def _key_codes(rows: pa.Table, key: tuple[str, ...]) -> list[np.ndarray]:
    """int64 codes that sort as the key does. Small columns share a code: fewer to sort by."""
    codes: list[np.ndarray] = []
    spare = 1  # number of values that the next column may have to fit into the last code
    for name in key:
        column = one_array(rows[name])
        if pa.types.is_integer(column.type):
            known = column if column.type == pa.int64() else column.cast(pa.int64())
            known = pc.fill_null(known, _NULL) if known.null_count else known
            code, distinct = known.to_numpy(), 1 << 63
        elif pa.types.is_boolean(column.type):
            code, distinct = column.to_numpy(zero_copy_only=False).astype(np.int64), 2
        else:
            code = _rank(column)
            distinct = int(code.max()) + 1
        if codes and distinct < spare:
            codes[-1] = codes[-1] * distinct + code
            spare //= distinct
        else:
            codes.append(code)
            spare = (1 << 62) // distinct
    return codes


def _order_of_few(rows: pa.Table, key: tuple[str, ...]) -> list[int] | None:
    """The numbers of these rows by key; None if two have the same key, or if unsure."""
    keys = list(zip(*(rows[name].to_pylist() for name in key), strict=True))
    if len({*keys}) < len(keys):
        return None
    try:
        # Python sorts strings by code points, which is the order of their UTF-8 bytes.
        return sorted(range(len(keys)), key=keys.__getitem__)
    except TypeError:  # a null
        return None


def _unsorted(codes: list[np.ndarray]) -> bool:
    """Whether any row is before the one above it."""
    undecided = np.ones(len(codes[0]) - 1, bool)
    for code in codes:
        if (undecided & (code[1:] < code[:-1])).any():
            return True
        undecided &= code[1:] == code[:-1]
    return False
