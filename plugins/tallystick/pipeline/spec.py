"""Reads back the declaration that a plan carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.errors import InvalidPipeline
from tallystick.format.canonical import Fields, fields, text
from tallystick.pipeline.columns import Column, refuse
from tallystick.pipeline.declared import SPEC_FORMAT, SPEC_FORMAT_2, Pipeline
from tallystick.pipeline.lookback import Lookback, parse_lookback
from tallystick.pipeline.outputs import PlannedOutput
from tallystick.pipeline.tables import Table
from tallystick.pipeline.topics import Json, Topic


def pipeline_from_spec(spec: Mapping[str, Any], *, where: str) -> Pipeline:
    """Read a plan's spec back into the value it came from; raises Corrupt or InvalidPipeline."""
    f = fields(spec, where)
    if (found := f.take("format", str)) not in (SPEC_FORMAT, SPEC_FORMAT_2):
        raise InvalidPipeline(
            f"{where}: spec format is {found!r}, this version reads {SPEC_FORMAT!r}.",
            next_step="run the version of tallystick that made the plan, or clear the plan task.",
        )
    name, warehouse, job, kafka = (f.take(n, str) for n in ("name", "warehouse", "job", "kafka"))
    records_per_task = f.take("records_per_task", int)
    topics, tables = f.take_list("topics", _parse_topic), f.take_list("tables", _parse_table)
    second = found == SPEC_FORMAT_2
    outputs = f.take_list("outputs", _parse_output) if second else ()
    lookback = _take_lookback(f) if second else None
    f.done()
    return Pipeline(
        name=name,
        topics=topics,
        warehouse=warehouse,
        job=job,
        tables=tables,
        kafka=kafka,
        records_per_task=records_per_task,
        outputs=outputs,
        lookback=lookback,
    )


def _take_lookback(f: Fields) -> Lookback | None:
    found = f.take_fields_or_none("lookback")
    return None if found is None else parse_lookback(found)


def outputs_in_spec(spec: Mapping[str, Any], *, where: str) -> tuple[PlannedOutput, ...]:
    """Read the outputs alone of a plan's spec; raises Corrupt or InvalidPipeline."""
    if spec.get("format") != SPEC_FORMAT_2:
        return ()
    return fields(spec, where).take_list("outputs", _parse_output)


def _parse_output(value: Any, where: str) -> PlannedOutput:
    f = fields(value, where)
    name, table, target = (f.take(n, str) for n in ("name", "table", "target"))
    replaced: Any = f.take("replaced", str)
    f.done()
    return PlannedOutput(name=name, table=table, replaced=replaced, target=target)


def _parse_topic(value: Any, where: str) -> Topic:
    f = fields(value, where)
    name = f.take("name", str)
    decode = f.take_fields("decode")
    f.done()
    if decode.take("kind", str) != "json":
        raise refuse(
            f"{where}: decode kind is not json.",
            "run the version of tallystick that made the plan.",
        )
    columns = decode.take_list("columns", _parse_column)
    tombstones: Any = decode.take("tombstones", str)
    decode.done()
    return Topic(name, decode=Json(columns, tombstones=tombstones))


def _parse_table(value: Any, where: str) -> Table:
    f = fields(value, where)
    name = f.take("name", str)
    columns = f.take_list("columns", _parse_column)
    partition_by, key_names = f.take_list("partition_by", text), f.take_list("keys", text)
    combine: Any = f.take_map("combine", text)
    f.done()
    return Table(name, columns=columns, partition_by=partition_by, keys=key_names, combine=combine)


def _parse_column(value: Any, where: str) -> Column:
    f = fields(value, where)
    name, kind, required = f.take("name", str), f.take("type", str), f.take("required", bool)
    source, parse = f.take_or_none("source", str), f.take_or_none("parse", str)
    f.done()
    return Column(name, kind, required=required, source=source, parse=parse)
