"""Parses the declaration that a plan contains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.errors import InvalidPipeline
from tallystick.format.canonical import corrupt
from tallystick.pipeline.dead_letters import Limit, from_stored
from tallystick.pipeline.declared import Pipeline
from tallystick.pipeline.outputs import PlannedOutput
from tallystick.pipeline.planned import OutputsSpec, PipelineSpec
from tallystick.pipeline.topics import Topic


def pipeline_from_spec(spec: Mapping[str, Any], *, where: str) -> Pipeline:
    """Return the pipeline that a plan's spec declares; raises Corrupt or InvalidPipeline."""
    found = _fields(spec, where)
    read = PipelineSpec.from_json(found, where)
    return Pipeline(
        name=read.name,
        topics=[Topic(t.name, decode=t.decode, key=t.key, headers=t.headers) for t in read.topics],
        warehouse=read.warehouse,
        job=read.job,
        tables=read.tables,
        kafka=read.kafka,
        records_per_task=read.records_per_task,
        outputs=read.outputs,
        lookback=read.lookback,
        max_dead_letters=_limit(read.max_dead_letters, where),
        rows_sha256=read.rows_sha256,
    )


def outputs_in_spec(spec: Mapping[str, Any], *, where: str) -> tuple[PlannedOutput, ...]:
    """Return only the outputs of a plan's spec; raises Corrupt or InvalidPipeline.

    The rest is not checked: committed rows must still be published, even if the rules for declarations have changed.
    """
    found = _fields(spec, where)
    return OutputsSpec.from_json({"outputs": found.get("outputs", [])}, where).outputs


def _limit(limit: int | str | None, where: str) -> Limit:
    try:
        return from_stored(limit)
    except ValueError as error:
        raise corrupt(f"{where}.max_dead_letters", str(error)) from error


def _fields(spec: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = dict(spec)
    name = found.pop("format", None)
    if name != PipelineSpec.FORMAT:
        raise InvalidPipeline(
            f"{where}: expected spec format {PipelineSpec.FORMAT!r}, found {name!r}.",
            hint="run the version of tallystick that wrote the plan, or clear task `plan`.",
        )
    return found
