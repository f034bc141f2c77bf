"""A job that needs no server and loads the same classes as the stack's drivers: Arrow stages, frames, Parquet, SQL.

Only class_archive.py runs it: spark-submit archived_job.py FOLDER.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.window import Window

_SCHEMA = "n bigint, name string, at timestamp"


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "archived"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: object) -> _Reader:
        return _Reader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        at = pa.array([0, 1], pa.timestamp("us", tz="UTC"))
        yield pa.RecordBatch.from_arrays(
            [pa.array([1, 2]), pa.array(["a", "b"]), at], ["n", "name", "at"]
        )


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main(folder: Path) -> None:
    """Run one small action of each kind."""
    session = (
        SparkSession.builder.config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    assert session.range(0, 2, 1, 2).mapInArrow(_same, "id bigint").toArrow().num_rows == 2
    session.dataSource.register(_Source)
    frame = session.read.format("archived").load()
    last = f.row_number().over(Window.partitionBy("name").orderBy(f.col("at").desc()))
    first = frame.withColumn("last", last).where("last = 1").dropDuplicates(["name"])
    totals = frame.groupBy("name").agg(f.count("*"), f.sum("n").alias("total"), f.max("at"))
    both = first.join(totals, "name").orderBy("name").select("name", "total", f.to_date("at"))
    both.write.parquet(str(folder / "rows"))
    read = session.read.parquet(str(folder / "rows")).repartition(2)
    assert len(read.mapInArrow(_same, read.schema).collect()) == 2
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
