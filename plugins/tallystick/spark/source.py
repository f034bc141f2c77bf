"""`spark.read.format("tallystick")`: the decoded records of one topic, as one attempt landed them.

    spark.read.format("tallystick").option("topic", "flights").load("<lake root>/scratch/.../<uuid>.json@<sha256>")

The path names the list of landed files and its digest, which fixes the plan, the attempt and every byte: all readings
give the same rows (tallystick.engine.landing says why Kafka is not read here). No option holds a secret; executors reach
the store by their own settings, as every task does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tallystick.engine.landing import Landed, LandedFile, read_landed, read_records, records_schema
from tallystick.errors import InvalidRequest, listed
from tallystick.format import keys
from tallystick.pipeline import Pipeline, pipeline_from_spec
from tallystick.store.open import open_store

FORMAT = "tallystick"
_PATH = re.compile(r"(.+)/(scratch/[^@]+)@([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedRef:
    """One list of landed files: its lake root's URI, its key, and the digest of its bytes."""

    lake_uri: str
    key: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.lake_uri}/{self.key}@{self.sha256}"

    def read(self) -> Landed:
        """Read the list; raises Corrupt where it is not the one that was written."""
        return read_landed(open_store(self.lake_uri), self.key, sha256=self.sha256)


def parse_landed_ref(text: str) -> LandedRef:
    """Read one `<lake root>/scratch/<interval>/<plan uuid>/<attempt>/<uuid>.json@<sha256>`; raises InvalidRequest."""
    found = _PATH.fullmatch(text)
    try:
        if found:
            return LandedRef(lake_uri=found[1], key=keys.check_scratch(found[2]), sha256=found[3])
    except ValueError:
        pass  # told just below
    raise InvalidRequest(
        f"{text!r} names no landed records.",
        hint="load the path that a DataFrame job's log tells: <lake root>/scratch/.../<uuid>.json@<sha256>.",
    )


class LandedSource(DataSource):
    """The data source: a path as `LandedRef` spells it, and the option `topic`."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return FORMAT

    def schema(self) -> StructType:
        """The topic's declared columns, their lineage and `_key`; raises InvalidRequest, Corrupt."""
        _, pipeline = self._landed()
        return from_arrow_schema(records_schema(pipeline, self._topic(pipeline)))

    def reader(self, schema: StructType) -> LandedReader:
        """The reader; raises InvalidRequest, Corrupt."""
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
                f"option topic is {topic!r}, pipeline {pipeline.name} reads {listed(declared)}.",
                hint="name one of these.",
            )
        return str(topic)


class LandedReader(DataSourceReader):
    """One Spark partition per landed file."""

    def __init__(
        self, root: str, pipeline: Pipeline, files: Sequence[LandedFile], schema: StructType
    ) -> None:
        self._root = root
        self._pipeline = pipeline
        self._files = tuple(files)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The files, in the order of their pieces."""
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one file's records; raises Corrupt where it is not the landed one, StoreUnavailable."""
        if partition.value is None:
            return  # what Spark asks where there are no files
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in read_records(open_store(self._root), partition.value, self._pipeline):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def landed_frame(session: SparkSession, ref: LandedRef, topic: str) -> DataFrame:
    """The records of one topic as a DataFrame: evaluated anew by every action, with the same rows each time."""
    session.dataSource.register(LandedSource)
    return session.read.format(FORMAT).option("topic", topic).load(str(ref))
