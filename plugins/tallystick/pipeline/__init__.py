"""The declarations of a user: a pipeline, its topics, its tables. Frozen values, validated at once, no heavy import.

pipeline = Pipeline(
    name="flights",
    topics=[Topic("flights", decode=Json([Column("origin", "string"), Column("dep_delay", "int", required=False)]))],
    warehouse="s3://lake/flights",
    job="spark_jobs/flights.py",
    tables=[Table("flights", columns=[Column("origin", "string"), Column("dep_delay", "int", required=False)])],
)
"""

from __future__ import annotations

from tallystick.format.upkeep import Upkeep
from tallystick.pipeline.columns import DEAD_LETTER_COLUMNS, LINEAGE, Column
from tallystick.pipeline.debezium import Debezium
from tallystick.pipeline.declared import LATENESS_MAX, ROW_SEMANTICS, Pipeline
from tallystick.pipeline.formats import Csv, Format, Json, Raw, Text
from tallystick.pipeline.lookback import Lookback
from tallystick.pipeline.many_topics import Topics
from tallystick.pipeline.outputs import DeclaredOutput, PlannedOutput, Replaced
from tallystick.pipeline.registrations import DeclaredRegistration
from tallystick.pipeline.schema_formats import Avro, Protobuf
from tallystick.pipeline.spec import outputs_in_spec, pipeline_from_spec
from tallystick.pipeline.tables import DEAD_LETTERS, Table, partition_rule
from tallystick.pipeline.topics import Topic

__all__ = [
    "DEAD_LETTERS",
    "DEAD_LETTER_COLUMNS",
    "LATENESS_MAX",
    "LINEAGE",
    "ROW_SEMANTICS",
    "Avro",
    "Column",
    "Csv",
    "Debezium",
    "DeclaredOutput",
    "DeclaredRegistration",
    "Format",
    "Json",
    "Lookback",
    "Pipeline",
    "PlannedOutput",
    "Protobuf",
    "Raw",
    "Replaced",
    "Table",
    "Text",
    "Topic",
    "Topics",
    "Upkeep",
    "outputs_in_spec",
    "partition_rule",
    "pipeline_from_spec",
]
