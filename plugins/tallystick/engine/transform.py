"""Calls the job's transform batch by batch, and checks its results against the pipeline's declaration.

    transform(records: pa.Table) -> pa.Table | dict[str, pa.Table]

`records` has the decoded columns, `_topic`, `_kafka_partition`, `_offset`, `_timestamp` and `_key`, of one topic. If one
table is declared for it, the transform may return just that one. Nothing is guessed: it is an error if a table or column
is missing, a type differs, a required column has a null, or a row has the lineage of another record. The error names both
sides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.clock import LOG_TIME
from tallystick.engine.conform import as_declared, check_type, mismatch
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.records import KEY
from tallystick.errors import InvalidPipeline, TallystickError, listed
from tallystick.pipeline import LINEAGE, Pipeline, Table
from tallystick.tables.schema import arrow_schema, type_name

log = logging.getLogger(__name__)
Transform = Callable[[pa.Table], Any]
_LINEAGE_NAMES = tuple(c.name for c in LINEAGE)


class JobTransform:
    """The user's function with checks: its results fit the declared tables exactly."""

    def __init__(self, function: Transform, pipeline: Pipeline) -> None:
        """Check the pipeline; raises InvalidPipeline if a table has keys but no `combine`, or if there is a lookback."""
        if pipeline.lookback is not None:
            raise InvalidPipeline(
                f"pipeline {pipeline.name} has a lookback, but {pipeline.job} is an Arrow job, which gets one batch "
                "at a time.",
                hint="use a DataFrame job (run_dataframe): its context has the earlier rows.",
            )
        for table in pipeline.tables:
            if table.aggregates and not table.combine:
                raise InvalidPipeline(
                    f"table {table.name}: expected combine for the keys, because {pipeline.job} is an Arrow job and its "
                    "rows are partial; found none.",
                    hint="add combine={...} or remove keys; or use a DataFrame job (run_dataframe), which returns "
                    "one row per key.",
                )
        self._function = function
        self._job = pipeline.job
        self._tables = {t.name: t for t in pipeline.tables}

    def __call__(self, split: InputSplit, records: pa.Table) -> dict[str, pa.Table]:
        """Return one table per declared output of the split's topic, its columns in the declared order and types.

        Raises InvalidPipeline naming job, split and first offset if the function raises, and naming table, column and
        both types if its result does not fit.
        """
        first = records.column("_offset")[0].as_py()
        where = f"job {self._job}, {split}, batch from offset {first}"
        try:
            outcome = self._function(records)
        except TallystickError:
            raise
        except Exception as error:  # the transform is the user's code: it may raise anything
            log.exception("the transform raised: %s", where)
            raise InvalidPipeline(
                f"{where}: the transform raised {type(error).__name__}: {error}.",
                hint="read the traceback in the task's log, fix the job, deploy it and clear `plan`.",
            ) from error
        tables = {n: t for n, t in self._tables.items() if t.topic in (None, split.source)}
        if isinstance(outcome, pa.Table | pa.RecordBatch) and len(tables) == 1:
            outcome = {next(iter(tables)): outcome}
        outputs = named_outputs(
            outcome, tables, (pa.Table, pa.RecordBatch), "an Arrow table", where
        )
        return {name: self._fitted(name, outputs[name], records, where) for name in tables}

    def _fitted(
        self, name: str, found: pa.Table | pa.RecordBatch, records: pa.Table, where: str
    ) -> pa.Table:
        table = self._tables[name]
        rows = pa.Table.from_batches([found]) if isinstance(found, pa.RecordBatch) else found
        where = f"{where}: table {name!r}"
        result = fitted(table, rows, where)
        if not table.aggregates:
            _check_lineage(result, records, where)
        return result


def named_outputs(
    outcome: Any, declared: Mapping[str, Table], kinds: tuple[type, ...], kind: str, where: str
) -> Mapping[str, Any]:
    """Return `outcome`, the result of a transform, if it is one output of one of `kinds` per declared table.

    Raises InvalidPipeline if it is not.
    """
    if not isinstance(outcome, Mapping):
        raise mismatch(
            f"{where}: expected a dict of tables by name from the transform, found {type(outcome).__name__}"
        )
    if outcome.keys() != declared.keys():
        raise mismatch(
            f"{where}: expected the declared tables {listed(sorted(declared))} from the transform, found "
            f"{listed(sorted(map(str, outcome)))}"
        )
    for name, table in outcome.items():
        if not isinstance(table, kinds):
            raise mismatch(
                f"{where}, table {name!r}: expected {kind}, found {type(table).__name__}"
            )
    return outcome


def written_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of the columns that a job returns for a table."""
    return arrow_schema(table.written)


def check_shape(table: Table, found: pa.Schema, where: str) -> None:
    """Check the names and types of an output's columns before it has rows; raises InvalidPipeline if they do not fit."""
    schema = written_schema(table)
    _check_names(found.names, schema, table, where)
    for field in schema:
        check_type(found.field(field.name).type, field.type, f"{where}, column {field.name!r}")


def fitted(table: Table, rows: pa.Table, where: str) -> pa.Table:
    """Return rows with the table's columns in the declared order and types; raises InvalidPipeline if they do not fit."""
    schema = written_schema(table)
    _check_names(rows.column_names, schema, table, where)
    columns = [as_declared(rows.column(f.name), f, where) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _check_names(found: list[str], schema: pa.Schema, table: Table, where: str) -> None:
    if len(set(found)) != len(found):
        raise mismatch(f"{where}: expected unique column names, found {listed(sorted(found))}")
    missing = [n for n in schema.names if n not in found]
    ignored = {KEY, LOG_TIME, *(_LINEAGE_NAMES if table.aggregates else ())}
    extra = [n for n in found if n not in schema.names and n not in ignored]
    if missing:
        raise mismatch(
            f"{where}: expected column {missing[0]!r} of type {type_name(schema.field(missing[0]).type)}, found none"
        )
    if extra:
        raise mismatch(f"{where}: expected only declared columns, found {extra[0]!r}")


def _check_lineage(rows: pa.Table, records: pa.Table, where: str) -> None:
    """Refuse a row if its lineage is not that of a record of this batch."""
    # Most transforms keep all records in their order.
    if all(rows.column(name).equals(records.column(name)) for name in _LINEAGE_NAMES):
        return
    for name in ("_topic", "_kafka_partition"):
        if rows.num_rows and pc.unique(rows.column(name)).to_pylist() != [
            records.column(name)[0].as_py()
        ]:
            raise mismatch(
                f"{where}, column {name!r}: expected the records' own value, found another"
            )
    given, taken = _numbers(records, "_offset"), _numbers(rows, "_offset")
    # A batch's offsets ascend, so a binary search finds the record of each row.
    places = np.minimum(np.searchsorted(given, taken), len(given) - 1)
    unknown = np.flatnonzero(given[places] != taken)
    if unknown.size:
        raise mismatch(
            f"{where}, column '_offset': expected the offset of a record of this batch, found {taken[unknown[0]]}"
        )
    changed = np.flatnonzero(
        _numbers(records, "_timestamp")[places] != _numbers(rows, "_timestamp")
    )
    if changed.size:
        raise mismatch(
            f"{where}, column '_timestamp': expected that of the record at offset {taken[changed[0]]}, found another"
        )


def _numbers(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: np.ndarray[Any, np.dtype[np.int64]] = table.column(name).cast(pa.int64()).to_numpy()
    return numbers
