"""What a plan decides of an open pipeline: the topics of patterns, and the columns of schemas."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystick.errors import InvalidPipeline, listed
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.root import Root
from tallystick.operations.kafka_log import KafkaLog
from tallystick.operations.schemas import OpenRegistry, PipelineSchemas
from tallystick.pipeline import Avro, Column, Pipeline, Protobuf, Table, Topic, Topics
from tallystick.pipeline.registry_options import registry_options

if TYPE_CHECKING:
    from tallystick.engine.decode.followed import FollowedColumns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPipeline:
    """A pipeline with all of its topics and columns, and its schemas.

    `new_by_pattern`: the topics that a pattern has found and that the ledger does not have.
    """

    pipeline: Pipeline
    schemas: PipelineSchemas
    new_by_pattern: frozenset[str] = frozenset()


def resolved_pipeline(
    pipeline: Pipeline, root: Root | None, kafka: KafkaLog, open_registry: OpenRegistry
) -> ResolvedPipeline:
    """Return the pipeline with all of its topics and columns, and its schemas. Another pipeline is returned unchanged.

    The topics of a pattern are those that match now and those that the ledger has. A new one that cannot be read, or not
    yet, is left out with a warning, so that it does not stop the others. Raises InvalidPipeline if there is no topic, and
    the errors of Kafka and of the registries.
    """
    if not pipeline.is_open:
        schemas = PipelineSchemas(pipeline.registry_formats(), open_registry)
        return ResolvedPipeline(pipeline=pipeline, schemas=schemas)
    known = [name for name, topic in root.topics.items() if topic.closed is None] if root else []
    topics, tables, new = _listed(pipeline, {keys.kafka_topic(name) for name in known}, kafka)
    schemas = PipelineSchemas(
        [formats for topic in topics.values() for formats in topic.registry_formats()],
        open_registry,
        may_lack=new,
    )
    for name, subjects in (schemas.lacking() if new else {}).items():
        log.warning("topic %s is left out until the registry has %s", name, listed(subjects))
        del topics[name]
    columns = _columns(topics, tables, schemas, root)
    for name, followed in columns.items():
        if followed.columns:
            continue
        found = "; ".join(followed.left_out) or "none"
        if name not in new:
            raise InvalidPipeline(
                f"topic {name}: expected a schema with fields in the registry, found {found}.",
                hint="register a schema of the topic's values, or declare its columns.",
            )
        log.warning("topic %s is left out: expected a schema with fields, found %s", name, found)
        del topics[name]
    if not topics:
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: expected topics that match {[t.pattern for t in pipeline.patterns]}, found none.",
            hint="create a topic, register its schema, or correct the pattern; the log names the topics that are left "
            "out.",
        )
    closed = {
        name: _closed(topic, columns[name].columns if name in columns else ())
        for name, topic in topics.items()
    }
    resolved = replace(
        pipeline,
        topics=list(closed.values()),
        tables=[_with_columns(t, closed) for t in tables if t.topic is None or t.topic in closed],
        rows_sha256=pipeline.declared_rows_sha256(),
    )
    schemas.check_misfits(resolved)
    return ResolvedPipeline(
        pipeline=resolved, schemas=schemas, new_by_pattern=frozenset(new & closed.keys())
    )


def _listed(
    pipeline: Pipeline, ledger: Collection[str], kafka: KafkaLog
) -> tuple[dict[str, Topic], list[Table], set[str]]:
    """Return all topics by name and all tables, with those of the patterns, and the names of the patterns' new topics.

    Topics of the ledger get their tables first, so that no new topic takes the table of one of them.
    """
    topics = {topic.name: topic for topic in pipeline.inputs}
    tables = {table.name: table for table in pipeline.tables}
    names = {*kafka.topics(), *ledger} - topics.keys() if pipeline.patterns else set()
    new: set[str] = set()
    for name in sorted(names, key=lambda name: (name not in ledger, name)):
        pattern = next((p for p in pipeline.patterns if p.matches(name)), None)
        if pattern is None:
            continue
        try:
            table = _free_table(pattern, name, tables)
        except InvalidPipeline as error:
            if name in ledger:
                raise
            log.warning("topic %s is left out: %s %s", name, error.message, error.hint)
            continue
        topics[name], tables[table.name] = pattern.topic(name), table
        if name not in ledger:
            new.add(name)
    return topics, list(tables.values()), new


def _free_table(pattern: Topics, name: str, tables: Mapping[str, Table]) -> Table:
    """Return the table of a topic; raises InvalidPipeline if no table can have its name, or if another one has it."""
    table = pattern.table_for(name)
    if (other := tables.get(table.name)) is not None:
        owner = "the pipeline" if other.topic is None else f"topic {other.topic!r}"
        raise InvalidPipeline(
            f"topics {pattern.pattern!r}: expected a table per topic, found table {table.name!r} for {name!r} and for "
            f"{owner}.",
            hint="use another `table`, a pattern that leaves one of them out, or declare one as a Topic of its own.",
        )
    return table


def _columns(
    topics: Mapping[str, Topic],
    tables: Sequence[Table],
    schemas: PipelineSchemas,
    root: Root | None,
) -> dict[str, FollowedColumns]:
    """Return the columns of the topics that follow their schemas: those of their tables in the lake, and new ones."""
    following = [topic for topic in topics.values() if topic.follows]
    if not following:
        return {}
    # Only here: planning of other pipelines needs no decoder.
    from tallystick.engine.decode.followed import followed_columns

    found: dict[str, FollowedColumns] = {}
    for topic in following:
        assert isinstance(topic.decode, Avro | Protobuf)
        options = registry_options(topic.decode)
        assert options is not None
        found[topic.name] = followed_columns(
            topic.decode,
            schemas.own(options, topic.name, "value"),
            table=_in_lake(topic, tables, root),
            taken=[column.name for column in topic.declared_columns],
        )
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
