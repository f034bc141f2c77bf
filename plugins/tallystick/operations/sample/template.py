"""The text of a new pipeline's DAG file and job file: what a person would write, with comments where one must decide.

The lines fit ruff's format, at its default of 88 columns and at 100: what is broken into lines ends in a comma.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tallystick.format.types import LIST, MAP, STRUCT
from tallystick.operations.sample.guess import Guess, GuessedColumn
from tallystick.pipeline import Column

WIDTH = 88
RUNS_EXPECTED_MAX = 100
Schedule = Literal["@daily", "@monthly", "@yearly"]
_NOUNS: dict[Schedule, str] = {"@daily": "day", "@monthly": "month", "@yearly": "year"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What the two files contain. `origin`: where the columns come from, for a comment.

    `day_of`: the column whose day partitions the table. `choices`: other columns that could. `end`: the day of the newest
    record, if the topic seems finished. `runs`: how many runs of `schedule` unpausing would start. `first_party`: True
    if the project contains tallystick's own source, whose imports form a block of their own there.
    """

    name: str
    table: str
    topic: str
    kafka: str
    warehouse: str
    warehouse_note: str | None
    guess: Guess
    origin: str
    day_of: str
    choices: Sequence[str]
    start: datetime
    end: datetime | None
    runs: int
    schedule: Schedule
    first_party: bool = False


def dag_source(new: Template) -> str:
    """Return the text of the DAG file."""
    lines = [
        f'"""Replays the topic {new.topic} into the table {new.table}, one commit a {_NOUNS[new.schedule]}."""',
        "",
        "from __future__ import annotations",
        "",
        "from datetime import UTC, datetime",
        "",
        "from tallystick import Column, Json, Pipeline, Table, Topic",
        "from tallystick.airflow import replay_dag",
        "",
        *_comment(
            f"Guessed from {new.origin}. Required columns had a value in each record: a record without one becomes a "
            "dead letter.",
        ),
        "COLUMNS = [",
        *(line for one in new.guess.columns for line in _column(one)),
        "]",
        "",
        "pipeline = Pipeline(",
        f"    name={_text(new.name)},",
        f"    topics=[Topic({_text(new.topic)}, decode=Json(COLUMNS))],",
        *([f"    kafka={_text(new.kafka)},"] if new.kafka != "default" else []),
        *(_comment(new.warehouse_note, "    ") if new.warehouse_note else []),
        f"    warehouse={_text(new.warehouse)},",
        f"    job={_text(f'spark_jobs/{new.name}.py')},",
        "    tables=[",
        *_table(new),
        *_second_table(new),
        "    ],",
        ")",
        "",
        "dag = replay_dag(",
        "    pipeline,",
        f'    schedule="{new.schedule}",',
        *_dates(new),
        ")",
    ]
    return "\n".join(lines) + "\n"


def job_source(new: Template) -> str:
    """Return the text of the job file."""
    blocks = "\n\n" if new.first_party else "\n"
    return f'''"""Makes the rows of the table {new.table}: one per record of the topic {new.topic}."""

from __future__ import annotations

import pyarrow as pa{blocks}from tallystick.spark import run


def transform(records: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each table for one batch of records.

    `records` has the columns of the DAG file, and `_topic`, `_kafka_partition`,
    `_offset` and `_timestamp`, which the rows of a table without keys keep.
    """
    return {{{_text(new.table)}: records}}


if __name__ == "__main__":
    run(transform)
'''


def _comment(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _text(value: str) -> str:
    """Return a string as ruff formats it: in double quotes, unless that needs more escapes."""
    if "\\" in value and '"' not in value and value.isprintable():
        return f'r"{value}"'
    escaped = value.encode("unicode_escape").decode() if not value.isprintable() else value
    escaped = escaped if escaped != value else value.replace("\\", "\\\\")
    quote = "'" if escaped.count('"') > escaped.count("'") else '"'
    return quote + escaped.replace(quote, f"\\{quote}") + quote


def _column(one: GuessedColumn) -> Iterator[str]:
    lines = _code(one.column, "    ")
    note = "; ".join(one.notes)
    if note and len(lines) == 1 and len(f"{lines[0]}  # {note}") <= WIDTH:
        yield f"{lines[0]}  # {note}"
        return
    yield from _comment(note, "    ") if note else ()
    yield from lines


def _code(column: Column, indent: str) -> list[str]:
    """Return a column as code: in one line if it fits and none of its parts has rules of its own."""
    words = _words(column, column.text)
    line = f"{indent}Column({', '.join(words)}),"
    _, fields = _opened(column)
    if len(line) <= WIDTH and not any(map(_has_rules, fields)):
        return [line]
    lines = [f"{indent}Column("]
    kind, fields = _opened(column)
    lines += [f"{indent}    {word}," for word in _words(column, kind)]
    if fields:
        inner = [line for f in fields for line in _code(f, f"{indent}        ")]
        lines += [f"{indent}    fields=[", *inner, f"{indent}    ],"]
    return [*lines, f"{indent}),"]


def _words(column: Column, kind: str) -> list[str]:
    words = [_text(column.name), _text(kind)]
    if not column.required:
        words.append("required=False")
    if column.source is not None:
        words.append(f"source={_text(column.source)}")
    if (rule := _rule(column)) is not None:
        words.append(f"parse={_text(rule)}")
    return words


def _rule(column: Column) -> str | None:
    """Return a column's parse rule; that of a list's elements or of a map's values is written with the list or map."""
    if column.type in (LIST, MAP):
        return _rule(column.fields[-1])
    return column.parse


def _has_rules(column: Column) -> bool:
    """Return True if the text of a type cannot contain what is declared of a part of it."""
    if column.source is not None or column.parse is not None:
        return True
    return any(map(_has_rules, column.fields))


def _opened(column: Column) -> tuple[str, Sequence[Column]]:
    """Return a type's text with its struct without fields, and the fields of that struct; none if it has no struct."""
    if column.type == STRUCT:
        return STRUCT, column.fields
    if column.type not in (LIST, MAP):
        return column.text, ()
    inner = column.fields[-1]
    kind, fields = _opened(inner)
    kind = kind if inner.required else f"optional {kind}"
    before = "" if column.type == LIST else f"{column.fields[0].text}, "
    return f"{column.type}<{before}{kind}>", fields


def _plain(name: str) -> str:
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def _table(new: Template) -> Iterator[str]:
    if new.day_of == "_timestamp":
        others = (
            f"; or by a column: {', '.join(f'day({c})' for c in new.choices)}"
            if new.choices
            else ""
        )
        yield from _comment(f"Decide: by the day of Kafka's timestamp{others}.", " " * 8)
    rule = f'["day({new.day_of})"]'
    line = f"        Table({_text(new.table)}, columns=COLUMNS, partition_by={rule}),"
    if len(line) <= WIDTH:
        yield line
        return
    yield "        Table("
    yield f"            {_text(new.table)},"
    yield "            columns=COLUMNS,"
    yield f"            partition_by={rule},"
    yield "        ),"


def _second_table(new: Template) -> Iterator[str]:
    """Yield an aggregated table as an example, in comments: one row per key and interval."""
    columns = [one.column for one in new.guess.columns if not one.column.fields]
    if not columns:
        return
    key = min(columns, key=lambda c: (not c.required, c.type != "string"))
    name, kind = key.name, key.type
    optional = "" if key.required else ", required=False"
    yield from _comment(
        "A second table: one row per key and interval. The job returns partial counts as well.",
        " " * 8,
    )
    yield from (
        f"        # {line}"
        for line in (
            "Table(",
            f"    {_text(f'{new.table}_counts')},",
            f'    columns=[Column({_text(name)}, {_text(kind)}{optional}), Column("records", "long")],',
            f"    keys=[{_text(name)}],",
            '    combine={"records": "sum"},',
            "),",
        )
    )


def fitting_schedule(start: datetime, end: datetime) -> tuple[Schedule, datetime, int]:
    """Return the finest schedule with few runs, the beginning of its interval that contains `start`, and the runs."""
    months = (end.year - start.year) * 12 + end.month - start.month + 1
    if (days := (end - start).days + 1) <= RUNS_EXPECTED_MAX:
        return "@daily", start, days
    if months <= RUNS_EXPECTED_MAX:
        return "@monthly", start.replace(day=1), months
    return "@yearly", start.replace(month=1, day=1), end.year - start.year + 1


def _dates(new: Template) -> Iterator[str]:
    yield f"    start_date={_instant(new.start)},"
    if new.end is not None:
        yield from _comment(
            f"The day of the newest record in the sample: unpausing starts {new.runs} "
            f"run{'s' if new.runs > 1 else ''}. Remove end_date when records arrive again.",
            "    ",
        )
        yield f"    end_date={_instant(new.end)},"
        return
    if not new.runs:
        yield from _comment(
            "The first run starts when this day is over. Days that are missed while the DAG is paused are run when it is "
            "unpaused: catchup is True by default.",
            "    ",
        )
        return
    if new.runs <= RUNS_EXPECTED_MAX:
        yield from _comment(
            f"Unpausing starts a run for each day since start_date ({new.runs} now), because catchup is True by default.",
            "    ",
        )
        return
    yield from _comment(
        f"With catchup=True, unpausing would start {new.runs:,} runs, one for each day since start_date. Without it, the "
        "days before the latest remain gaps until a backfill fills them.",
        "    ",
    )
    yield "    catchup=False,"


def _instant(at: datetime) -> str:
    return f"datetime({at.year}, {at.month}, {at.day}, tzinfo=UTC)"
