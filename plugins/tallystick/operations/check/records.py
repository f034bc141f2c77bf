"""The findings on a dry run: rows, dead letters with what would read them, columns that do not fit, event times."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tallystick.engine.decode.record import KEY_FIELD
from tallystick.errors import listed
from tallystick.operations.check.dry_run import DryRun, fields_of
from tallystick.operations.check.finding import (
    Checked,
    failed,
    not_checked,
    of_error,
    ok,
    warning,
)
from tallystick.operations.sample.guess import fitting, object_of
from tallystick.operations.sample.records import Sample
from tallystick.pipeline import Column, Format, Pipeline
from tallystick.pipeline.dead_letters import exceeded
from tallystick.pipeline.paths import Path, escaped

RECORDS, TRANSFORM, EVENT_TIME, FIELDS = "records", "transform", "event time", "fields"
ORDER = "order"
LATE_MS = 3_600_000
REASONS_SHOWN = 10
NAMES_SHOWN = 8
# As `reasons.named` builds it.
_KIND = re.compile(r"(\w+)(?:: field (.*))?", re.DOTALL)


def record_findings(
    pipeline: Pipeline, samples: Sequence[Sample], run: DryRun, *, arrow: bool
) -> Iterator[Checked]:
    """Yield the findings of a dry run. `arrow`: False for a DataFrame job, which is not called."""
    yield _decoded(pipeline, run, samples)
    if run.values_only:
        topics = listed(dict.fromkeys(run.values_only))
        yield not_checked(
            RECORDS,
            f"the keys of {topics}: a file of records has values only; without --sample, the topic's records are read",
        )
    yield from _fields(pipeline, samples, run)
    if run.problem is not None:
        at = f"{run.problem_at}: " if run.problem_at else ""
        yield of_error(TRANSFORM, run.problem, *_grid(run), where=at)
    elif not arrow:
        yield Checked(
            check=TRANSFORM,
            state="not checked",
            text="a DataFrame job needs Spark: its records were decoded, its transform was not called",
        )
    elif run.values_only:
        yield not_checked(TRANSFORM, "without keys the records lack columns that are declared")
    elif run.records:
        rows = ", ".join(f"{name} {count:,}" for name, count in run.rows.items())
        yield ok(TRANSFORM, f"rows by table: {rows}")
    yield from _order(samples)
    yield from _event_times(run)


def _decoded(pipeline: Pipeline, run: DryRun, samples: Sequence[Sample]) -> Checked:
    total = run.records + run.dead
    text = f"{total:,} read: {run.records:,} decoded, {run.dead:,} dead letters"
    if not run.dead:
        return ok(RECORDS, text)
    ordered = sorted(run.reasons.items(), key=lambda item: -item[1].count)
    lines = [f"{one.count:,}, e.g. {one.example}" for _, one in ordered[:REASONS_SHOWN]]
    if len(ordered) > REASONS_SHOWN:
        lines.append(f"and {len(ordered) - REASONS_SHOWN} more kinds of reasons")
    steps = list(
        dict.fromkeys(
            step
            for kind, _ in ordered[:REASONS_SHOWN]
            if (step := _step(pipeline, kind, run, samples)) is not None
        )
    )
    with_registry = pipeline.registry_formats()
    if run.schema_ids and not with_registry:
        ids = listed(number for number, _ in run.schema_ids.most_common(3))
        steps.insert(
            0,
            f"{run.schema_ids.total():,} values have Confluent's wire format (byte 0, then the id of a schema in the "
            f"registry: {ids}): declare Avro, Protobuf or Json with registry=..., by the kind of these schemas "
            "(docs/how-to/read-avro.md).",
        )
    if with_registry and any(kind.startswith("schema_id") for kind, _ in ordered):
        steps.insert(
            0,
            "name all subjects whose schemas the topic's records have: subjects=[...] of its format "
            "(docs/how-to/follow-schemas.md).",
        )
    if with_registry and any(kind.startswith("magic") for kind, _ in ordered):
        steps.insert(0, "values without a schema id need schema=... in place of registry=....")
    hint = " ".join(steps) or "check types, parse and source of the columns against the records."
    if not run.records:
        return failed(RECORDS, f"{text}: a run would have no row", hint, *lines)
    limit = exceeded(pipeline.max_dead_letters, records=run.records, dead=run.dead)
    if limit is not None:
        return failed(RECORDS, f"{text}: expected {limit} (max_dead_letters)", hint, *lines)
    return warning(RECORDS, text, hint, *lines)


def _step(pipeline: Pipeline, kind: str, run: DryRun, samples: Sequence[Sample]) -> str | None:
    """Return what to change so that the records of one kind of reason decode, if the values show it."""
    match = _KIND.fullmatch(kind)
    why, field = (match[1], match[2]) if match else ("", None)
    of_key, column, field = _place_of(pipeline, field)
    if column is None or field is None:
        many = run.reasons[kind].count * 2 >= run.records + run.dead
        if why in ("json", "utf8", "object") and not run.schema_ids and many:
            parts = "keys" if of_key else "values"
            return f"The topic's {parts} are not JSON objects: declare the Format that they have."
        if why == "tombstone" and of_key:
            return 'If records may have no key, declare its format with tombstones="keep".'
        return None
    contents = (one for sample in samples for one in _contents(sample, of_key=of_key))
    found = [one for content in contents if (one := object_of(content)) is not None]
    if why in ("missing", "null") and field != column.field:
        return (
            f"If {field} may be missing or null, declare it as optional in column {column.name!r}."
        )
    if why == "missing" and len(column.path) > 1 and any(field in one for one in found):
        return f"The records have a field of that name: write {_source(field)}, which is no path."
    if why in ("missing", "null"):
        return f"If records may lack {field}, declare column {column.name!r} with required=False."
    given = [_value_at(one, column.path) for one in found]
    better = fitting(field, given)
    if better is None:
        return (
            f"No type reads all values of {field} in the sample, because they are of different kinds, e.g. numbers and "
            "texts: change the producer, or leave the records of one kind to the dead letters."
        )
    if (better.text, better.parse) == (column.text, column.parse):
        return None
    parse = f', parse="{better.parse}"' if better.parse else ""
    return f'Column("{column.name}", "{better.text}"{parse}) reads the values of {field}.'


def _source(name: str) -> str:
    """Return the argument that names a top-level field, as code."""
    literal = escaped(name)
    return f'source=r"{literal}"' if literal != name else f"source={name!r}"


def _value_at(value: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _place_of(pipeline: Pipeline, field: str | None) -> tuple[bool, Column | None, str | None]:
    """Return True if a reason is about the key; the column that it is about; and the field in the value or the key."""
    if field is None:
        return False, None, None
    specs = [pipeline.topic_spec(topic.name) for topic in pipeline.inputs]
    of_keys = [column for spec in specs if spec.key is not None for column in spec.key.columns]
    column = _column_of((c for spec in specs for c in spec.decode.columns), field)
    if column is not None or not of_keys or field.split(".")[0] != KEY_FIELD:
        return False, column, field
    if field == KEY_FIELD:
        return True, None, None
    inside = field.removeprefix(f"{KEY_FIELD}.")
    return True, _column_of(of_keys, inside), inside


def _column_of(columns: Iterable[Column], field: str) -> Column | None:
    # The place of a part of a column begins with that of the column: device.os, items[].sku.
    return next(
        (
            c
            for c in columns
            if c.field == field or field.startswith((f"{c.field}.", f"{c.field}["))
        ),
        None,
    )


def _contents(sample: Sample, *, of_key: bool) -> Iterator[bytes | None]:
    """Yield the records' values, or their keys."""
    for batch in sample.batches:
        yield from batch.column("key" if of_key else "value").to_pylist()


def _fields(pipeline: Pipeline, samples: Sequence[Sample], run: DryRun) -> Iterator[Checked]:
    """Yield a warning for optional columns whose field no record has, and the fields that no column reads."""
    for topic in pipeline.inputs:
        spec = pipeline.topic_spec(topic.name)
        own = [sample for sample in samples if sample.topic == topic.name]
        empty = [column for of, column in run.empty if of == topic.name]
        yield from _fields_of(f"topic {topic.name}", spec.decode, own, empty)
        if spec.key is not None:
            yield from _fields_of(f"topic {topic.name}, key", spec.key, own, empty, of_key=True)


def _fields_of(
    what: str,
    declared: Format,
    samples: Sequence[Sample],
    empty: Sequence[Column],
    *,
    of_key: bool = False,
) -> Iterator[Checked]:
    if declared.name != "json":
        return
    fields = fields_of([one for s in samples for one in _contents(s, of_key=of_key)])
    if not fields:
        return
    known = {column.path[0] for column in declared.columns}
    ignored = [name for name in fields if name not in known]
    for column in (c for c in declared.columns if c in empty and c.path[0] not in fields):
        near = difflib.get_close_matches(column.field, ignored, 1)
        yield warning(
            FIELDS,
            f"{what}: no record has the field {column.field!r}, so column {column.name!r} is null in every row",
            f"did you mean {_source(near[0])}?"
            if near
            else "correct source=, or remove the column.",
        )
    if ignored and declared.options.get("other_fields") is None:
        more = f" and {len(ignored) - NAMES_SHOWN} more" if len(ignored) > NAMES_SHOWN else ""
        yield ok(
            FIELDS, f"{what}: not declared, so not read: {listed(ignored[:NAMES_SHOWN])}{more}"
        )


def _grid(run: DryRun) -> list[str]:
    """Return the columns of both sides as lines, if some do not fit; these are marked."""
    if all(pair.fits for pair in run.columns):
        return []
    heads = ("table", "column", "declared", "returned")
    rows = [(p.table, p.column, p.declared or "-", p.returned or "-") for p in run.columns]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(4)]
    marks = ["" if pair.fits else "  <- differs" for pair in run.columns]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(heads, widths, strict=True)).rstrip()]
    for row, mark in zip(rows, marks, strict=True):
        cells = "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))
        lines.append(f"{cells}{mark}".rstrip())
    return lines


def _order(samples: Sequence[Sample]) -> Iterator[Checked]:
    """Yield a warning if records are much later in their partition than a record with a later timestamp."""
    records = late = latest_by_ms = 0
    for sample in samples:
        if not sample.from_kafka:
            continue
        stamps = np.concatenate([_millis(batch) for batch in sample.batches])
        behind = np.maximum.accumulate(stamps) - stamps
        records += len(stamps)
        late += int((behind > LATE_MS).sum())
        latest_by_ms = max(latest_by_ms, int(behind.max(initial=0)))
    if late:
        yield warning(
            ORDER,
            f"{late:,} of {records:,} records have a timestamp more than an hour before that of an earlier record of "
            f"their partition, by up to {timedelta(seconds=latest_by_ms // 1000)}: they are in the interval in which "
            "they arrived, not in that of their timestamp",
            "if that is not intended, produce the records in the order of their timestamps, to a new topic; or partition "
            "the table by a time column, and query by it.",
        )


def _millis(batch: pa.RecordBatch) -> NDArray[np.int64]:
    stamps: NDArray[np.int64] = (
        batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
    )
    return stamps


def _event_times(run: DryRun) -> Iterator[Checked]:
    for one in run.times:
        if one.days_apart * 2 <= one.compared or one.example is None:
            yield ok(EVENT_TIME, f"column {one.column}: within a day of the records' timestamps")
            continue
        value, stamp = one.example
        yield warning(
            EVENT_TIME,
            f"column {one.column}: {one.days_apart:,} of {one.compared:,} records are more than a day from their Kafka "
            f"timestamp, e.g. {value} with timestamp {stamp}. Intervals are by Kafka's timestamp, not by a column",
            "set the event time as the records' timestamp when they are produced; or choose start_date and end_date by "
            "the timestamps.",
        )
