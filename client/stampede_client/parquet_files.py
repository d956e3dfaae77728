"""Parquet files: the only module that opens them."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq


def read_answer(body: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """The rows of a server's answer, and the pairs in its footer. Raises what pyarrow raises."""
    file = pq.ParquetFile(BytesIO(body))
    return file.read(), dict(file.metadata.metadata or {})
