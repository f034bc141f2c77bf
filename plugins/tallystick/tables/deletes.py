"""Writes and reads Iceberg's position delete files: the deleted positions of one data file each.

Iceberg spec, Position Delete Files: the columns `file_path` and `pos` with reserved field ids, sorted. The bounds of
`file_path` are the whole path, so that readers find the data file without opening the delete file.

PyArrow is imported on first use: a commit that deletes no positions does not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestWriterV2,
)
from pyiceberg.typedef import Record

from tallystick.errors import TallystickError
from tallystick.format.canonical import corrupt
from tallystick.protocol.compacting import Positions

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

PATH_ID = 2147483546
POSITION_ID = 2147483545


@cache
def schema() -> pa.Schema:
    """Return the columns of a position delete file."""
    import pyarrow as pa

    # A dictionary holds the path once in memory; the file has plain strings.
    columns = (
        ("file_path", pa.dictionary(pa.int8(), pa.string()), PATH_ID),
        ("pos", pa.int64(), POSITION_ID),
    )
    return pa.schema(
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(field_id)})
        for name, kind, field_id in columns
    )


def write_deletes(
    io: FileIO, location: str, *, target: str, positions: Positions, spec_id: int, partition: Record
) -> DataFile:
    """Write the deleted positions of the data file at `target`; return the entry for a manifest.

    `spec_id`, `partition`: those of the data file, by which readers match the two. Safe to repeat: `location` is new for
    each call, and nothing names it before a root does.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    deleted = pa.array(_each(positions))
    number = pa.repeat(pa.scalar(0, pa.int8()), len(deleted))
    paths = pa.DictionaryArray.from_arrays(number, pa.array([target]))
    body = BytesIO()
    pq.write_table(
        pa.table([paths, deleted], schema=schema()),
        body,
        compression="zstd",
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        use_dictionary=["file_path"],
        store_schema=False,
    )
    with io.new_output(location).create() as stream:
        stream.write(body.getvalue())
    path = target.encode()
    entry = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(deleted),
        file_size_in_bytes=len(body.getvalue()),
        column_sizes={},
        value_counts={PATH_ID: len(deleted), POSITION_ID: len(deleted)},
        null_value_counts={PATH_ID: 0, POSITION_ID: 0},
        nan_value_counts={},
        lower_bounds={PATH_ID: path},
        upper_bounds={PATH_ID: path},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    # from_args does not set it, and the snapshot's summary reads it.
    entry.spec_id = spec_id
    return entry


def _each(positions: Positions) -> np.ndarray:
    """Return each position of some ranges. A sorted file may have as many ranges as deleted rows."""
    import numpy as np

    ranges = np.array(positions, np.int64).reshape(-1, 2)
    lengths = ranges[:, 1] - ranges[:, 0]
    # The position minus its number among the deleted ones is the same for all positions of a range.
    shift = ranges[:, 0] - (np.cumsum(lengths) - lengths)
    found: np.ndarray = np.arange(lengths.sum()) + np.repeat(shift, lengths)
    return found


def target_of(entry: ManifestEntry) -> str:
    """Return the location of the data file whose positions a delete file has. Raises Corrupt if it is not of one file."""
    file = entry.data_file
    lower, upper = (
        (bounds or {}).get(PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds)
    )
    if file.content != DataFileContent.POSITION_DELETES or lower is None or lower != upper:
        raise corrupt(file.file_path, "expected the deleted positions of one data file")
    return lower.decode()


def read_deletes(io: FileIO, location: str, *, target: str) -> Iterator[int]:
    """Yield the deleted positions of a data file. Raises Corrupt if the file is unreadable or names another data file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with io.new_input(location).open() as stream:
            rows = pq.read_table(pa.BufferReader(stream.read()))
        named = rows.column("file_path").unique().to_pylist()
        positions = rows.column("pos").to_pylist()
    except TallystickError:
        raise
    except (pa.ArrowException, OSError, KeyError) as error:
        raise corrupt(
            location, f"expected a position delete file ({type(error).__name__})"
        ) from error
    if named != [target]:
        raise corrupt(location, f"expected deleted positions of {target}, found those of {named}")
    yield from positions


class DeletesManifestWriter(ManifestWriterV2):
    """The writer of a manifest of delete files, which PyIceberg lacks."""

    def content(self) -> ManifestContent:
        """Return the content of the manifest, for the manifest list."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
