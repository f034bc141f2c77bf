"""The Spark data source `tallystick`: the decoded records of one topic, as one attempt landed them.

    spark.read.format("tallystick").option("topic", "flights").load("<lake URI>/scratch/.../<uuid>.json@<sha256>")

The path contains the key of the list of landed files and the list's digest. Together they fix the plan, the attempt and
every byte, so each read returns the same rows. tallystick.engine.landing explains why Kafka is not read here. No option
holds a secret: executors connect to the store with their own settings, as every task does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tallystick.engine.conform import conformed
from tallystick.engine.landing import Landed, LandedFile, read_landed, read_records, records_schema
from tallystick.errors import InvalidRequest, listed
from tallystick.format import keys
from tallystick.pipeline import Pipeline, pipeline_from_spec
from tallystick.spark.types import spark_schema
from tallystick.store.open import open_store

FORMAT = "tallystick"
_PATH = re.compile(r"(.+)/(scratch/[^@]+)@([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedRef:
    """A reference to one list of landed files: the lake URI, the list's key, and the SHA-256 of its bytes."""

    lake_uri: str
    key: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.lake_uri}/{self.key}@{self.sha256}"

    def read(self) -> Landed:
        """Read the list. Raises Corrupt if it is missing or its digest differs."""
        return read_landed(open_store(self.lake_uri), self.key, sha256=self.sha256)


def parse_landed_ref(text: str) -> LandedRef:
    """Parse `<lake URI>/scratch/<interval>/<plan uuid>/<attempt>/<uuid>.json@<sha256>`; raises InvalidRequest."""
    found = _PATH.fullmatch(text)
    try:
        if found:
            return LandedRef(lake_uri=found[1], key=keys.check_scratch(found[2]), sha256=found[3])
    except ValueError:
        pass  # raised below
    raise InvalidRequest(
        f"expected a path of landed records, found {text!r}.",
        hint="load the path in the log of a DataFrame job: <lake URI>/scratch/.../<uuid>.json@<sha256>.",
    )


class LandedSource(DataSource):
    """The data source. It takes the text of a `LandedRef` as the path, and the option `topic`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the topic's declared columns, the lineage and `_key`, and the log time if the pipeline has a lookback.

        Raises InvalidRequest, Corrupt.
        """
        _, pipeline = self._landed()
        return spark_schema(records_schema(pipeline, self._topic(pipeline)))

    def reader(self, schema: StructType) -> LandedReader:
        """Return the reader of the topic's files; raises InvalidRequest, Corrupt."""
        landed, pipeline = self._landed()
        ref = parse_landed_ref(self.options["path"])
        return LandedReader(ref.lake_uri, pipeline, landed.of_topic(self._topic(pipeline)), schema)

    def _landed(self) -> tuple[Landed, Pipeline]:
        landed = parse_landed_ref(self.options.get("path", "")).read()
        return landed, pipeline_from_spec(landed.spec, where=f"{landed.key} spec")

    def _topic(self, pipeline: Pipeline) -> str:
        declared = [t.name for t in pipeline.inputs]
        topic = self.options.get("topic", declared[0] if len(declared) == 1 else "")
        if topic not in declared:
            raise InvalidRequest(
                f"option topic: expected one of {listed(declared)}, which pipeline {pipeline.name} reads, found "
                f"{topic!r}.",
                hint="name a topic of the pipeline.",
            )
        return str(topic)


class LandedReader(DataSourceReader):
    """A reader with one Spark partition per landed file."""

    def __init__(
        self, root: str, pipeline: Pipeline, files: Sequence[LandedFile], schema: StructType
    ) -> None:
        self._root = root
        self._pipeline = pipeline
        self._files = tuple(files)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files, in the order of their input splits."""
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one file's records. Raises Corrupt if it is not the file that was landed, StoreUnavailable."""
        if partition.value is None:
            return  # Spark passes None if there are no files
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in read_records(open_store(self._root), partition.value, self._pipeline):
            arrays = [
                column if column.type == f.type else conformed(column, f.type, f.name)
                for column, f in zip(batch.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def landed_frame(session: SparkSession, ref: LandedRef, topic: str) -> DataFrame:
    """Return the records of one topic as a DataFrame. Each action evaluates it again, with the same rows each time."""
    session.dataSource.register(LandedSource)
    return session.read.format(FORMAT).option("topic", topic).load(str(ref))
