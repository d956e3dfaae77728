"""The bucket as files: its tables, and byte ranges of its packs. `docs/store.md` describes them."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from stampede_client.errors import NotFound, Unavailable

LISTINGS = 3
"""Times that the runs are listed: `compact` may delete one between listing and reading."""
FOOTERS_AT_ONCE = 16
"""Requests for footers of runs at once; they wait for the store."""


class Bucket:
    """A bucket, read without the server.

    Parameters
    ----------
    store
        A directory, or a URL that pyarrow knows, such as
        ``s3://BUCKET?endpoint_override=http://HOST:PORT``. With `filesystem`, the bucket's path.
    filesystem
        For example `pyarrow.fs.S3FileSystem` with keys and endpoint.
    """

    def __init__(self, store: str, filesystem: fs.FileSystem | None = None) -> None:
        if filesystem is None and "://" in store:
            filesystem, store = fs.FileSystem.from_uri(store)
        self.filesystem = filesystem or fs.LocalFileSystem()
        self.root = store.rstrip("/")

    def rows(
        self, table: str, wanted: pc.Expression | None, columns: list[str] | None = None
    ) -> pa.Table:
        """The rows of a table's runs that `wanted` selects, in all versions.

        Raises
        ------
        NotFound
            If the bucket has no such table.
        Unavailable
            If runs went on disappearing while they were read.
        """
        for listing in range(LISTINGS):
            try:
                return self._runs(table).to_table(filter=wanted, columns=columns)
            except FileNotFoundError as error:
                gone = error
                if listing + 1 == LISTINGS:
                    break
        raise Unavailable(f"runs of {self.root} go on disappearing; read again later") from gone

    def _runs(self, table: str) -> ds.Dataset:
        folder = fs.FileSelector(f"{self.root}/tables/{table}", allow_not_found=True)
        found = self.filesystem.get_file_info(folder)
        paths = sorted(info.path for info in found if info.path.endswith(".parquet"))
        if not paths:
            raise NotFound(f"{self.root} has no tables/{table}; check the path of the bucket")
        fragments = [_FORMAT.make_fragment(path, self.filesystem) for path in paths]
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:  # a fragment keeps its footer
            schemas = [*pool.map(lambda fragment: fragment.physical_schema, fragments)]
        # The longest schema has all columns: a version of Stampede only adds some at the end.
        schema = max(schemas, key=len).remove_metadata()
        return ds.FileSystemDataset(fragments, schema, _FORMAT, self.filesystem)


_FORMAT = ds.ParquetFileFormat(page_checksum_verification=True)
