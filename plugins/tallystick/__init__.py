"""tallystick: Airflow-orchestrated, exactly-once batch replay from Kafka to Iceberg tables on plain S3.

Public names are imported on first use, so that parsing a DAG file loads only what the file uses.

The layers, from the top. Each layer imports only layers below it:

cli            the command `tally`
airflow        operators, DAG factory, timetables, notes and links: what Airflow runs and shows
spark          the entry of a job file under spark-submit
operations     the use cases, one verb per file or folder: plan, stage, commit, publish, release, verify, gc, status, ...
stateful       windows, sessions, deduplication and aggregates for jobs with state
engine         the code inside a Spark task: input, decoding, transform, Parquet files, accounts
lake           snapshots of the root, and the loop that swaps it
outputs        places outside the lake that get each committed row once
tables         Iceberg metadata, staged for the swap; readers of tables
pipeline       the declarations of a user
kafka          boundaries, exact ranges as raw batches, an account of every offset
registry       schema registries: schemas by their ids, with all that they refer to
protocol       pure decisions: the grants of a plan, the effects of a commit, the next step of a publisher
connections    settings of servers outside the lake
format         the objects stored on S3
store          the object store: five verbs, writes with three outcomes
errors         all errors, grouped by what the caller does next
runtime        clock, ids and random numbers; compiled loops
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.runtime.lazy import lazy
from tallystick.runtime.version import VERSION

if TYPE_CHECKING:
    from tallystick.operations.read_snapshot import LakeSnapshot as LakeSnapshot
    from tallystick.operations.read_snapshot import read_snapshot as read_snapshot
    from tallystick.pipeline import Avro as Avro
    from tallystick.pipeline import Column as Column
    from tallystick.pipeline import Csv as Csv
    from tallystick.pipeline import Debezium as Debezium
    from tallystick.pipeline import Format as Format
    from tallystick.pipeline import Json as Json
    from tallystick.pipeline import Lookback as Lookback
    from tallystick.pipeline import Pipeline as Pipeline
    from tallystick.pipeline import Protobuf as Protobuf
    from tallystick.pipeline import Raw as Raw
    from tallystick.pipeline import Table as Table
    from tallystick.pipeline import Text as Text
    from tallystick.pipeline import Topic as Topic
    from tallystick.pipeline import Topics as Topics
    from tallystick.pipeline import Upkeep as Upkeep

__version__ = VERSION
_DECLARED = [
    *("Avro", "Column", "Csv", "Debezium", "Format", "Json", "Lookback"),
    *("Pipeline", "Protobuf", "Raw", "Table", "Text", "Topic", "Topics", "Upkeep"),
]
__all__ = [
    "Avro",
    "Column",
    "Csv",
    "Debezium",
    "Format",
    "Json",
    "LakeSnapshot",
    "Lookback",
    "Pipeline",
    "Protobuf",
    "Raw",
    "Table",
    "Text",
    "Topic",
    "Topics",
    "Upkeep",
    "__version__",
    "read_snapshot",
]

__getattr__ = lazy(
    __name__,
    {name: "tallystick.pipeline" for name in _DECLARED}
    | {name: "tallystick.operations.read_snapshot" for name in ("LakeSnapshot", "read_snapshot")},
)


def __dir__() -> list[str]:
    return sorted(__all__)
