"""Calls the transform of a DataFrame job and checks its DataFrames against the declaration before any is evaluated."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tallystick.engine.transform import check_shape, named_outputs
from tallystick.errors import InvalidPipeline, TallystickError
from tallystick.pipeline import Pipeline, Table
from tallystick.spark.context import Context
from tallystick.spark.stage import known_error
from tallystick.spark.traps import traps_of

log = logging.getLogger("tallystick.spark")


def transformed(
    session: SparkSession,
    transform: Callable[..., Any],
    frames: Mapping[str, DataFrame],
    context: Context,
    pipeline: Pipeline,
) -> Mapping[str, DataFrame]:
    """Call the transform and return its DataFrames by table, checked by name and type before any of them is evaluated.

    Raises InvalidPipeline if the transform raises, or if its DataFrames do not fit the declaration.
    """
    where = f"job {pipeline.job}"
    records: Any = frames if len(frames) > 1 else next(iter(frames.values()))
    try:
        parameters = len(inspect.signature(transform).parameters)
        outcome = transform(records, context) if parameters > 1 else transform(records)
    except TallystickError:
        raise
    except Exception as error:  # the transform is the user's code: it may raise anything
        known = known_error(session, error)
        if isinstance(known, TallystickError):
            raise known from error
        log.exception("the transform raised: %s", where)
        raise InvalidPipeline(
            f"{where}: the transform raised {type(error).__name__}: {_first_line(error)}.",
            hint="read the traceback in the driver's log, correct the job, deploy it and clear `plan`.",
        ) from error
    declared = {t.name: t for t in pipeline.tables}
    if isinstance(outcome, DataFrame) and len(declared) == 1:
        outcome = {next(iter(declared)): outcome}
    outputs = named_outputs(outcome, declared, (DataFrame,), "a DataFrame", where)
    for name, table in declared.items():
        _check_shape(table, outputs[name], f"{where}: table {name!r}")
        for trap in traps_of(outputs[name]):
            log.warning("table %s: %s", name, trap)
    return outputs


def _check_shape(table: Table, frame: DataFrame, where: str) -> None:
    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    except PySparkException as error:
        raise InvalidPipeline(
            f"{where} has a column that no table can contain: {_first_line(error)}.",
            hint="cast it to a declared type in the transform, deploy it and clear `plan`.",
        ) from error
    check_shape(table, schema, where)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:500].rstrip(".")
