"""The findings on schema registries: the schemas of the topics' subjects, and those that do not fit the columns."""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.engine.decode.misfits import misfit
from tallystick.errors import TallystickError, listed
from tallystick.format.registries import PlannedRegistry
from tallystick.operations.check.finding import Checked, of_error, ok, warning
from tallystick.operations.schemas import PipelineSchemas, subjects_of
from tallystick.pipeline import Pipeline
from tallystick.pipeline.registry_options import registry_options

SCHEMAS = "schemas"


def schema_findings(
    pipeline: Pipeline, schemas: PipelineSchemas, found: list[PlannedRegistry]
) -> Iterator[Checked]:
    """Yield the findings on the schemas that the pipeline's formats read from registries; add them to `found`."""
    try:
        found += schemas.registries()
        schemas.check_misfits(pipeline)
    except TallystickError as error:
        yield of_error(SCHEMAS, error)
        return
    for topic, what, _ in pipeline.registry_formats():
        spec = pipeline.topic_spec(topic)
        declared = spec.decode if what == "value" else spec.key
        options = registry_options(declared)
        assert declared is not None
        assert options is not None
        own = schemas.own(options, topic, what)
        subjects = subjects_of(options, topic, what)
        reasons = {schema.id: misfit(declared, schema) for schema in own}
        text = f"{len(own)} of {listed(subjects)} in registry {options.registry}"
        if bad := [str(reason) for reason in reasons.values() if reason is not None]:
            yield warning(
                SCHEMAS,
                f"{text}; {len(bad)} do not fit the columns, so their records will be dead letters",
                "correct the columns' types or sources, or declare required=False for a field that older schemas lack.",
                *bad,
            )
        else:
            yield ok(SCHEMAS, f"{text}, ids {listed(sorted(reasons))}, fit the columns")
