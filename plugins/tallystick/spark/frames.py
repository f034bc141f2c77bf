"""A DataFrame job: land the records once, let the transform describe its outputs, write each by one action.

1. **Land** (one action): a task per piece reads and decodes it as an Arrow job's does; records go to the attempt's
   scratch, dead letters to their table's prefix. What Spark returns, once per piece, is the account of every offset, the
   dead letters' files and the scratch's. It is the only reading of Kafka, so the account is made exactly once.
2. **Transform**: called once, in the driver, with frames over the landed files. Whatever evaluates them, however often,
   reads the same bytes: a lost executor or a second output cannot change the input. `persist()` is the job's choice, for
   speed alone.
3. **Write** (one action per output): each task writes Parquet under the attempt's prefix and returns its files. Spark
   returns one result per partition, of a task that succeeded: files of others are named by nobody (C4).

An output's rows are exact under retries where the transform is deterministic; `traps` warns of what is known not to be.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tallystick.engine.attempt import assemble
from tallystick.engine.landing import LandedPiece, land_piece, landed_of, parse_landed_piece
from tallystick.engine.outputs import write_output
from tallystick.engine.pieces import Piece
from tallystick.engine.transform import check_shape, named_outputs
from tallystick.errors import InvalidPipeline, TallystickError
from tallystick.lake import Lake
from tallystick.pipeline import Pipeline, Table
from tallystick.protocol.canonical import encode, fields
from tallystick.protocol.report import FileReport, Report, parse_file
from tallystick.spark.context import Context, context_of
from tallystick.spark.session import failures_max, stage_session
from tallystick.spark.source import LandedRef, landed_frame
from tallystick.spark.stage import (
    Order,
    Target,
    caught,
    collected,
    explained,
    raise_decisive,
)
from tallystick.spark.traps import traps_of
from tallystick.store.open import open_store

log = logging.getLogger("tallystick.spark")
_RESULT = "result string, error string"
_ARROW = pa.schema([pa.field("result", pa.string()), pa.field("error", pa.string())])
Batches = Iterator[pa.RecordBatch]


def stage_frames(lake: Lake, order: Order, transform: Callable[..., Any]) -> Report:
    """Stage a DataFrame job and return its report, which is not written yet; raises what its tasks answer with.

    Safe to repeat: everything is written under the attempt's prefixes, each upload under a key of its own.
    """
    work = order.target.attempt_at(lake.store)
    if not order.pieces:
        return assemble(work, (), (), outputs=())
    session = stage_session(work.plan)
    master = session.sparkContext.master
    log.info("spark %s at %s: %d task(s) land", session.version, master, len(order.pieces))
    pieces = land(session, order)
    landed = landed_of(work, pieces)
    body = landed.encode()
    lake.put_new(landed.key, body)
    ref = LandedRef(root=lake.store.uri, key=landed.key, sha256=hashlib.sha256(body).hexdigest())
    log.info("%d records landed once: %s", sum(f.rows for f in landed.files), ref)
    frames = {t.name: landed_frame(session, ref, t.name) for t in work.pipeline.inputs}
    context = context_of(session, work.plan)
    outputs = transformed(session, transform, frames, context, work.pipeline)
    files: list[FileReport] = []
    for table in work.pipeline.tables:
        files.extend(write(session, order.target, table, outputs[table.name]))
    return assemble(work, order.pieces, [p.result for p in pieces], outputs=files)


def land(session: SparkSession, order: Order) -> list[LandedPiece]:
    """Run the action that reads Kafka, a task per piece; raises the most decisive error that a task answered with."""
    tries_max = failures_max(session)

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield _answer(partial(_land, order, order.pieces[index]), tries_max)

    count = len(order.pieces)
    rows = collected(session, session.range(0, count, 1, count).mapInArrow(task, _RESULT))
    raise_decisive(rows)
    return [parse_landed_piece(row["result"], where="result of a landing task") for row in rows]


def _land(order: Order, piece: Piece) -> str:
    work = order.target.attempt_at(open_store(order.target.root))
    return land_piece(work, piece, order.reading(piece)).to_json()


def transformed(
    session: SparkSession,
    transform: Callable[..., Any],
    frames: Mapping[str, DataFrame],
    context: Context,
    pipeline: Pipeline,
) -> Mapping[str, DataFrame]:
    """Call the transform and return its outputs, checked by name and type before any of them is evaluated.

    Raises InvalidPipeline where it raises, or where its outputs do not fit the declaration.
    """
    where = f"job {pipeline.job}"
    records: Any = frames if len(frames) > 1 else next(iter(frames.values()))
    try:
        wanted = len(inspect.signature(transform).parameters)
        outcome = transform(records, context) if wanted > 1 else transform(records)
    except TallystickError:
        raise
    except Exception as error:  # the transform is the user's code: it may raise anything
        known = explained(session, error)
        if isinstance(known, TallystickError):
            raise known from error
        log.exception("the transform raised: %s", where)
        raise InvalidPipeline(
            f"{where}: the transform raised {type(error).__name__}: {_first_line(error)}.",
            next_step="the driver's log has the traceback. Mend the job, deploy it and clear `plan`.",
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
            f"{where} has a column that no table can hold: {_first_line(error)}.",
            next_step="cast it to a declared type in the transform, deploy it and clear `plan`.",
        ) from error
    check_shape(table, schema, where)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:500].rstrip(".")


def write(
    session: SparkSession, target: Target, table: Table, frame: DataFrame
) -> list[FileReport]:
    """Evaluate one output by one action that writes it, and return the files of the tasks that succeeded."""
    tries_max = failures_max(session)
    rows = frame.select(*[c.name for c in table.written])
    if table.aggregates:
        # All rows of one key come to one task, beside each other, which sees a second one there.
        rows = rows.repartition(*table.keys).sortWithinPartitions(*table.keys)

    def task(batches: Batches) -> Batches:
        yield _answer(partial(_write, target, table.name, batches), tries_max)

    answers = collected(session, rows.mapInArrow(task, _RESULT))
    raise_decisive(answers)
    where = f"result of a task that wrote {table.name}"
    return [file for row in answers for file in _files_of(row["result"], where)]


def _write(target: Target, name: str, batches: Batches) -> str:
    context = TaskContext.get()
    assert context is not None
    work = target.attempt_at(open_store(target.root))
    files = write_output(work, name, f"{context.partitionId():05d}", batches)
    return encode({"files": [f.to_json() for f in files]}).decode()


def _files_of(text: str, where: str) -> tuple[FileReport, ...]:
    f = fields(json.loads(text), where)
    files = f.take_list("files", parse_file)
    f.done()
    return files


def _answer(run: Callable[[], str], tries_max: int) -> pa.RecordBatch:
    result, error = caught(run, tries_max)
    return pa.RecordBatch.from_pylist([{"result": result, "error": error}], schema=_ARROW)
