"""What a plan decides of an open pipeline: the topics of patterns, and the columns of schemas."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.root import Root
from tallystick.operations.kafka_log import KafkaLog
from tallystick.operations.schemas import OpenRegistry, PipelineSchemas
from tallystick.pipeline import Column, Pipeline, Table, Topic
from tallystick.pipeline.registry_options import registry_options

log = logging.getLogger(__name__)


def resolved_pipeline(
    pipeline: Pipeline, root: Root | None, kafka: KafkaLog, open_registry: OpenRegistry
) -> tuple[Pipeline, PipelineSchemas]:
    """Return the pipeline with all of its topics and columns, and its schemas. Another pipeline is returned unchanged.

    The topics of a pattern are those that match now and those that the ledger has. Raises InvalidPipeline if there is no
    topic, and the errors of Kafka and of the registries.
    """
    if not pipeline.is_open:
        return pipeline, PipelineSchemas(pipeline.registry_formats(), open_registry)
    known = [name for name, topic in root.topics.items() if topic.closed is None] if root else []
    ledger = {keys.kafka_topic(name) for name in known}
    topics, tables = _listed(pipeline, ledger, kafka)
    schemas = PipelineSchemas(
        [formats for topic in topics.values() for formats in topic.registry_formats()],
        open_registry,
        may_lack={n for n in topics if n not in ledger and _by_pattern(pipeline, n)},
    )
    columns = _columns(topics, tables, schemas, root)
    missing = [n for n, topic in topics.items() if topic.follows and not columns.get(n)]
    for name in missing:
        if name in ledger or not _by_pattern(pipeline, name):
            raise InvalidPipeline(
                f"topic {name}: expected a schema with fields in the registry, found none.",
                hint="register a schema of the topic's values, or declare its columns.",
            )
        log.warning("topic %s is left out until the registry has a schema of its values", name)
        topics.pop(name)
    if not topics:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: expected topics that match {[t.pattern for t in pipeline.patterns]}, found none.",
            hint="create a topic, register its schema, or correct the pattern.",
        )
    closed = {name: _closed(topic, columns.get(name, ())) for name, topic in topics.items()}
    found = replace(
        pipeline,
        topics=list(closed.values()),
        tables=[_with_columns(t, closed) for t in tables if t.topic is None or t.topic in closed],
        rows_sha256=pipeline.declared_rows_sha256(),
    )
    schemas.check_misfits(found)
    return found, schemas


def _by_pattern(pipeline: Pipeline, name: str) -> bool:
    return name not in [topic.name for topic in pipeline.inputs]


def _listed(
    pipeline: Pipeline, ledger: Collection[str], kafka: KafkaLog
) -> tuple[dict[str, Topic], list[Table]]:
    """Return all topics by name and all tables, with those of the patterns."""
    topics = {topic.name: topic for topic in pipeline.inputs}
    tables = list(pipeline.tables)
    names = {*kafka.topics(), *ledger} if pipeline.patterns else set()
    for pattern in pipeline.patterns:
        own = sorted(name for name in names - topics.keys() if pattern.matches(name))
        topics |= {name: pattern.topic(name) for name in own}
        declared = {table.name for table in tables}
        for table in pattern.tables(own):
            if table.name in declared:
                raise InvalidPipeline(
                    f"topics {pattern.pattern!r}: expected a table per topic, found table {table.name!r} of "
                    f"{table.topic!r} declared already.",
                    hint="use another `table` for the pattern.",
                )
            tables.append(table)
    return topics, tables


def _columns(
    topics: Mapping[str, Topic],
    tables: Sequence[Table],
    schemas: PipelineSchemas,
    root: Root | None,
) -> dict[str, tuple[Column, ...]]:
    """Return the columns of the topics that follow their schemas: those of their tables in the lake, and new ones."""
    following = [topic for topic in topics.values() if topic.follows]
    if not following:
        return {}
    # Only here: planning of other pipelines needs no decoder.
    from tallystick.engine.decode.followed import followed_columns

    found: dict[str, tuple[Column, ...]] = {}
    for topic in following:
        options = registry_options(topic.decode)
        assert options is not None
        own = schemas.own(options, topic.name, "value")
        found[topic.name] = followed_columns(own, _in_lake(topic, tables, root))
    return found


def _in_lake(topic: Topic, tables: Sequence[Table], root: Root | None) -> tuple[TableColumn, ...]:
    """Return the columns of the topic's values in the first table that follows it; none if the lake does not have it."""
    known = root.tables if root else {}
    names = [t.name for t in tables if t.follows and t.topic == topic.name and t.name in known]
    beyond = {c.name.lower() for c in topic.declared_columns}
    columns = known[names[0]].columns if names else ()
    return tuple(c for c in columns if not c.name.startswith("_") and c.name.lower() not in beyond)


def _closed(topic: Topic, columns: tuple[Column, ...]) -> Topic:
    """Return a topic with its columns in its format."""
    return replace(topic, decode=topic.value_format(columns)) if topic.follows else topic


def _with_columns(table: Table, topics: Mapping[str, Topic]) -> Table:
    if not table.follows:
        return table
    assert table.topic is not None
    return replace(table, columns=topics[table.topic].declared_columns)
