"""OpenLineage's objects of what a pipeline's commits read and wrote, named as its specification names datasets.

    Kafka        kafka://host:port of the first bootstrap server    the topic
    S3, Iceberg  s3://bucket                                        the table's path in the bucket

A table has no `symlinks`: it is in no catalog. The facets of tallystick have the schema of their kind in OpenLineage's
specification, as those of Airflow's provider have. Only `tallystick.airflow.lineage` imports this module, in functions,
because the packages that it imports are optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_type_dataset,
    dataset_version_dataset,
    datasource_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    storage_dataset,
)
from openlineage.client.generated.column_lineage_dataset import (
    ColumnLineageDatasetFacet,
    Fields,
    InputField,
    Transformation,
)

from tallystick.format import keys
from tallystick.format.page import TOTALS
from tallystick.format.types import ELEMENT, LIST, Typed
from tallystick.operations.column_origins import ColumnOrigin
from tallystick.operations.lineage import (
    CommitLineage,
    TableWritten,
    TopicRead,
    all_tables,
    all_topics,
    table_location,
)
from tallystick.pipeline import Pipeline

# The types and parts of nested columns as OpenLineage's Spark integration names them.
_TYPES = {LIST: "array"}
_PARTS = {ELEMENT: "_element"}
_DESCRIPTIONS = {
    "_topic": "the topic of the row's record; a later incarnation of a topic has a number",
    "_kafka_partition": "the partition of the row's record",
    "_offset": "the offset of the row's record",
    "_timestamp": "the timestamp of the row's record",
}
_DECLARED = "the field that the job gets under this name; the job may change the value"
# The type, the subtype and the description of a transformation, as OpenLineage defines them. A subtype is stated only if
# it is known.
_TRANSFORMATIONS: Mapping[str, tuple[str, str | None, str]] = {
    "copied": ("DIRECT", "IDENTITY", "copied from the record"),
    "as_text": ("DIRECT", "TRANSFORMATION", "as JSON text"),
    "declared": ("DIRECT", None, _DECLARED),
    "grouped": ("DIRECT", None, f"a key of the table: {_DECLARED}"),
    **{
        how: ("DIRECT", "AGGREGATION", f"combined by {how}: {_DECLARED}")
        for how in ("sum", "min", "max")
    },
}


def declared(pipeline: Pipeline, server: str | None) -> OperatorLineage[Any, Any]:
    """Return the topics and tables that a pipeline declares, without anything of a run.

    `server`: Kafka's first bootstrap server; None: topics are left out.
    """
    inputs = []
    if server is not None:
        kafka = f"kafka://{server}"
        inputs = [
            InputDataset(namespace=kafka, name=topic.name, facets=_place("TOPIC", kafka, kafka))
            for topic in pipeline.inputs
        ]
    outputs = []
    for table in pipeline.written_columns():
        location = table_location(pipeline.warehouse, table)
        space, name = _storage_name(location)
        outputs.append(
            OutputDataset(namespace=space, name=name, facets=_place("TABLE", space, location))
        )
    return OperatorLineage(inputs=inputs, outputs=outputs)


def committed(
    pipeline: Pipeline,
    uri: str,
    server: str | None,
    commits: Sequence[CommitLineage],
    *,
    is_whole: bool,
) -> OperatorLineage[Any, Any]:
    """Return what commits read and wrote. `server`: Kafka's first bootstrap server; None: topics are left out."""
    kafka = None if server is None else f"kafka://{server}"
    inputs = [] if kafka is None else [_topic(kafka, topic) for topic in all_topics(commits)]
    inputs += [_lookback(location) for location in _unique(c.lookback for c in commits)]
    return OperatorLineage(
        inputs=inputs,
        outputs=[_table(kafka, table) for table in all_tables(commits)],
        run_facets={
            "tallystick_commit": _commit_facet(pipeline.name, uri, commits, is_whole=is_whole)
        },
    )


def _topic(kafka: str, topic: TopicRead) -> InputDataset:
    ranges = [
        {"topic": name, "partition": partition, "start": one.start, "end": one.end}
        for (name, partition), found in topic.ranges.items()
        for one in found
    ]
    ids = [
        {"topic": name, "topicId": topic_id, "clusterId": cluster_id}
        for name, (topic_id, cluster_id) in topic.incarnations.items()
    ]
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=topic.totals.records + topic.totals.dead_letters
    )
    # A facet of the project's own has the schema of its kind in OpenLineage's specification, as those of Airflow have.
    offsets: Any = InputDatasetFacet().with_additional_properties(ranges=ranges, incarnations=ids)
    facets = _place("TOPIC", kafka, kafka)
    if topic.fields:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=f.name, type=f.type) for f in topic.fields
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    return InputDataset(
        namespace=kafka,
        name=topic.name,
        facets=facets,
        inputFacets={"inputStatistics": statistics, "tallystick_offsets": offsets},
    )


def _lookback(location: str) -> InputDataset:
    space, name = _storage_name(location)
    return InputDataset(namespace=space, name=name, facets=_place("TABLE", space, location))


def _table(kafka: str | None, table: TableWritten) -> OutputDataset:
    space, name = _storage_name(table.location)
    facets = _place("TABLE", space, table.location)
    facets["schema"] = schema_dataset.SchemaDatasetFacet(
        fields=[_part(c, c.name, _DESCRIPTIONS.get(c.name)) for c in table.columns]
    )
    if table.after is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=str(table.after)
        )
    if table.origins and kafka is not None:
        facets["columnLineage"] = _column_lineage(kafka, table.origins)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=table.rows, size=table.size_bytes, fileCount=table.files
    )
    snapshots: Any = OutputDatasetFacet().with_additional_properties(
        before=_text(table.before), after=_text(table.after), droppedFiles=table.dropped
    )
    return OutputDataset(
        namespace=space,
        name=name,
        facets=facets,
        outputFacets={"outputStatistics": statistics, "tallystick_snapshots": snapshots},
    )


def _place(kind: str, name: str, uri: str) -> dict[str, DatasetFacet]:
    """Return the facets of a topic or table that its declaration determines."""
    facets: dict[str, DatasetFacet] = {
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=kind),
        "dataSource": datasource_dataset.DatasourceDatasetFacet(name=name, uri=uri),
    }
    if kind == "TABLE":
        facets["storage"] = storage_dataset.StorageDatasetFacet(
            storageLayer="iceberg", fileFormat="parquet"
        )
    return facets


def _part(
    column: Typed, name: str, description: str | None = None
) -> schema_dataset.SchemaDatasetFacetFields:
    """Return a column or a part of one, as a field of the facet `schema`."""
    parts = _PARTS if column.type == LIST else {}
    return schema_dataset.SchemaDatasetFacetFields(
        name=name,
        type=_TYPES.get(column.type, column.type),
        description=description,
        fields=[_part(f, parts.get(f.name, f.name)) for f in column.fields],
    )


def _column_lineage(kafka: str, origins: Sequence[ColumnOrigin]) -> DatasetFacet:
    fields: dict[str, Fields] = {}
    groups: list[InputField] = []
    for one in origins:
        kind, subtype, description = _TRANSFORMATIONS[one.kind]
        how = Transformation(type=kind, subtype=subtype, description=description)
        source = _input_field(kafka, one, how)
        fields.setdefault(one.column, Fields(inputFields=[])).inputFields.append(source)
        if one.kind == "grouped":
            group = Transformation(type="INDIRECT", subtype="GROUP_BY")
            groups.append(_input_field(kafka, one, group))
    return ColumnLineageDatasetFacet(fields=fields, dataset=groups)


def _input_field(kafka: str, origin: ColumnOrigin, how: Transformation) -> InputField:
    return InputField(namespace=kafka, name=origin.topic, field=origin.field, transformations=[how])


def _commit_facet(
    pipeline: str, uri: str, commits: Sequence[CommitLineage], *, is_whole: bool
) -> RunFacet:
    facet: Any = RunFacet().with_additional_properties(
        pipeline=pipeline,
        lake=uri,
        version=max(one.version for one in commits),
        commits=[_commit_json(one) for one in commits],
        isWhole=is_whole,
    )
    typed: RunFacet = facet
    return typed


def _commit_json(commit: CommitLineage) -> dict[str, Any]:
    return {
        "interval": commit.interval.to_json(),
        "generation": commit.generation,
        "mode": commit.mode,
        "version": commit.version,
        "committedAt": keys.instant(commit.committed_at),
        "plan": commit.plan,
        "record": commit.record,
        "totals": {name: getattr(commit.totals, name) for name in TOTALS},
    }


def _storage_name(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a table: `s3://bucket`, and the path in the bucket."""
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")


def _text(number: int | None) -> str | None:
    # A receiver that reads JSON numbers as doubles would round the id of a snapshot.
    return None if number is None else str(number)


def _unique(several: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(one for values in several for one in values))
