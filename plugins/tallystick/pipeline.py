"""What a user declares: a pipeline, its topics, its tables. Frozen values, no heavy import, checked at once.

pipeline = Pipeline(
    name="flights",
    topics=[Topic("flights", decode=Json([Column("origin", "string"), Column("dep_delay", "int", required=False)]))],
    warehouse="s3://lake/flights",
    job="spark_jobs/flights.py",
    tables=[Table("flights", columns=[Column("origin", "string"), Column("dep_delay", "int", required=False)])],
)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from tallystick.errors import InvalidPipeline, listed
from tallystick.parse_rules import rule_problem
from tallystick.protocol import keys
from tallystick.protocol.canonical import encode, fields, text
from tallystick.protocol.columns import check_column_name, check_type

SPEC_FORMAT = "tallystick.pipeline/1"
# Raise it whenever the same bytes, job and declaration would give other rows: committed intervals then count as changed.
ROW_SEMANTICS = 1
DEAD_LETTERS = "dead_letters"
RECORDS_PER_TASK = 1_000_000
_TRANSFORM = re.compile(
    r"(?:(year|month|day|hour)\(([A-Za-z_][A-Za-z0-9_]*)\)|([A-Za-z_][A-Za-z0-9_]*))"
)
# How long a pipeline may wait for late records. A ledger is searched this far back for what a run was granted.
LATENESS_MAX = timedelta(days=31)
_WAREHOUSE = re.compile(r"(?:s3|memory)://[^/\s]+(?:/[^/\s]+)*")
Combine = Literal["sum", "min", "max"]
T = TypeVar("T")


def _refuse(happened: str, next_step: str) -> InvalidPipeline:
    return InvalidPipeline(happened, next_step=next_step)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, Iceberg type string, whether it must be there, and how it is read from JSON.

    `source` is the JSON field (default: the column's name). `parse` is for dates and timestamps: `iso8601` (the
    default), `epoch_ms`, `epoch_s`, `epoch_us`, or a strptime format; a timestamptz without an offset is UTC only where
    the format says so by ending in `Z`. A rule that no text could follow is InvalidPipeline at once (`parse_rules`).
    """

    name: str
    type: str
    required: bool = True
    source: str | None = None
    parse: str | None = None

    def __post_init__(self) -> None:
        try:
            check_column_name(self.name)
            object.__setattr__(self, "type", check_type(self.type))
        except ValueError as error:
            raise _refuse(f"{error}.", "mend the Column in the pipeline's file.") from error
        if self.parse is not None and self.type not in {"date", "timestamp", "timestamptz"}:
            raise _refuse(
                f"column {self.name!r} of type {self.type} has a parse rule {self.parse!r}.",
                "only date, timestamp and timestamptz take one: remove it.",
            )
        if self.parse is not None and (problem := rule_problem(self.parse, self.type)):
            raise _refuse(
                f"column {self.name!r} of type {self.type}: the parse rule {self.parse!r} {problem}.",
                "use iso8601, epoch_s, epoch_ms, epoch_us or a strptime format with a year; of a timestamptz also with "
                "%z or a final Z.",
            )

    @property
    def field(self) -> str:
        """The JSON field that the column is read from."""
        return self.source if self.source is not None else self.name


LINEAGE = (
    Column("_topic", "string"),
    Column("_kafka_partition", "int"),
    Column("_offset", "long"),
    Column("_timestamp", "timestamptz"),
)
"""What every row of every record-level table carries."""

DEAD_LETTER_COLUMNS = (
    *LINEAGE,
    Column("key", "binary", required=False),
    Column("value", "binary", required=False),
    # A JSON list of [name, base64 or null]: header names may repeat, values are bytes.
    Column("headers", "string", required=False),
    Column("reason", "string"),
)


@dataclass(frozen=True, slots=True)
class Json:
    """Values are JSON objects (RFC 8259, UTF-8); rows that do not fit the columns exactly become dead letters.

    `tombstones`: what a null value is: a dead letter (`dead`), or a row whose columns are all null (`keep`, which needs
    every column to be optional).
    """

    columns: Sequence[Column]
    tombstones: Literal["dead", "keep"] = "dead"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _unique(self.columns, "decode"))
        if self.tombstones not in ("dead", "keep"):
            raise _refuse(
                f"tombstones={self.tombstones!r} is not allowed.", "use 'dead' or 'keep'."
            )
        if self.tombstones == "keep" and any(c.required for c in self.columns):
            raise _refuse(
                "tombstones='keep' needs columns that may all be null.",
                "declare them required=False, or use 'dead'.",
            )


@dataclass(frozen=True, slots=True)
class Topic:
    """A Kafka topic and how its values are read. `decode=None`: the columns of the pipeline's first table."""

    name: str
    decode: Json | None = None

    def __post_init__(self) -> None:
        keys.check_topic(self.name)


@dataclass(frozen=True, slots=True)
class Table:
    """One output table.

    Record-level by default: each row comes from one record and carries its lineage columns, which are added here.
    With `keys` it aggregates: one row per `keys` and interval, and none says which records it comes from. With `combine`
    each other column is combined by sum, min or max, which an Arrow job needs, as its rows are partial; a DataFrame job
    returns one row per key, whatever it computes.
    `partition_by`: column names or year(c), month(c), day(c), hour(c) (Iceberg spec, Partition Transforms).
    """

    name: str
    columns: Sequence[Column]
    partition_by: Sequence[str] = ()
    keys: Sequence[str] = ()
    combine: Mapping[str, Combine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys.check_name(self.name, "table")
        if self.name == DEAD_LETTERS:
            raise _refuse(
                f"a table is named {DEAD_LETTERS}.",
                "that name is tallystick's own: choose another.",
            )
        object.__setattr__(self, "columns", _unique(self.columns, f"table {self.name}"))
        for name in ("partition_by", "keys"):
            object.__setattr__(
                self, name, _several(getattr(self, name), f"table {self.name}: {name}")
            )
        object.__setattr__(self, "combine", dict(self.combine))
        self._check_combine()
        self._check_partition()

    @property
    def aggregates(self) -> bool:
        """True where rows are combined over records, so that none has a lineage."""
        return bool(self.keys)

    @property
    def written(self) -> tuple[Column, ...]:
        """All columns of the stored table."""
        return tuple(self.columns) if self.aggregates else (*self.columns, *LINEAGE)

    def _check_combine(self) -> None:
        names = {c.name for c in self.columns}
        if strange := sorted(set(self.keys) - names):
            raise _refuse(
                f"table {self.name}: keys name {strange[0]!r}, which is no column.",
                f"use some of {listed(sorted(names))}.",
            )
        if len(set(self.keys)) != len(self.keys):
            raise _refuse(
                f"table {self.name}: keys {listed(self.keys)} name a column twice.",
                "name each key once.",
            )
        if not self.combine:
            return
        wanted = set(self.keys) | set(self.combine)
        if wanted != names or set(self.keys) & set(self.combine) or not self.keys:
            raise _refuse(
                f"table {self.name}: keys ({listed(self.keys)}) and combine ({listed(self.combine)}) are not the "
                f"columns ({listed(sorted(names))}), each once.",
                "name each column either in keys or in combine.",
            )
        for name, how in self.combine.items():
            kind = next(c.type for c in self.columns if c.name == name)
            if how not in ("sum", "min", "max"):
                raise _refuse(
                    f"table {self.name}: combine {name!r} by {how!r}.", "use sum, min or max."
                )
            if how == "sum" and not (
                kind in {"int", "long", "double"} or kind.startswith("decimal")
            ):
                raise _refuse(
                    f"table {self.name}: {name!r} of type {kind} has no sum.",
                    "use min, max or a number.",
                )

    def _check_partition(self) -> None:
        kinds = {c.name: c.type for c in self.written}
        if len(set(self.partition_by)) != len(self.partition_by):
            raise _refuse(f"table {self.name}: a partition rule stands twice.", "remove one.")
        for rule in self.partition_by:
            transform, column = partition_rule(rule)
            kind = kinds.get(column)
            derived = column if transform == "identity" else f"{column}_{transform}"
            if derived != column and derived in kinds:
                raise _refuse(
                    f"table {self.name}: partition_by {rule!r} makes a partition field {derived!r}, which is a column.",
                    "rename the column.",
                )
            if kind is None:
                raise _refuse(
                    f"table {self.name}: partition_by {rule!r} names no column.",
                    f"use one of {listed(sorted(kinds))}.",
                )
            in_time = {"timestamptz", "timestamp", "date"} - (
                {"date"} if transform == "hour" else set()
            )
            plain = {"string", "int", "long", "date"}
            if kind not in (in_time if transform != "identity" else plain):
                raise _refuse(
                    f"table {self.name}: partition_by {rule!r} of a {kind} column.",
                    "use year, month, day or hour of a time, or a string, int, long or date column by itself.",
                )


def partition_rule(rule: str) -> tuple[str, str]:
    """Return (transform, column) of a partition rule, e.g. ("day", "departure"); raises InvalidPipeline."""
    found = _TRANSFORM.fullmatch(rule.replace(" ", ""))
    if not found:
        raise _refuse(
            f"partition_by {rule!r} is not known.",
            "use a column, or year(c), month(c), day(c), hour(c).",
        )
    return (found[1], found[2]) if found[1] else ("identity", found[3])


def _several(values: Sequence[T], what: str) -> tuple[T, ...]:
    # A text is a sequence too, of its letters.
    if isinstance(values, str):
        raise _refuse(
            f"{what} is the text {values!r}, where a list belongs.", f"write [{values!r}]."
        )
    return tuple(values)


def _unique(columns: Iterable[Column], what: str) -> tuple[Column, ...]:
    kept = tuple(columns)
    names = [c.name.lower() for c in kept]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice or not kept:
        raise _refuse(
            f"{what}: " + (f"column {twice[0]!r} stands twice." if twice else "no columns."),
            "mend it.",
        )
    reserved = sorted(c.name for c in kept if c.name.startswith("_"))
    if reserved:
        raise _refuse(
            f"{what}: column {reserved[0]!r} begins with an underscore.",
            "such names are tallystick's: choose another.",
        )
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Topics in, tables out, one lake root.

    `kafka` names a connection, never its values. `job` is a path relative to the project's folder. A boundary is asked
    for only when `lateness` has passed since it. `begin` is the declared beginning of the log: what the topic lost
    before it is nobody's loss.
    """

    name: str
    topics: Sequence[Topic | str]
    warehouse: str
    job: str
    tables: Sequence[Table]
    kafka: str = "default"
    lateness: timedelta = timedelta(0)
    begin: datetime | None = None
    records_per_task: int = RECORDS_PER_TASK

    def __post_init__(self) -> None:
        keys.check_name(self.name, "pipeline")
        keys.check_name(self.kafka, "connection")
        set_ = object.__setattr__
        set_(self, "tables", tuple(self.tables))
        topics = _several(self.topics, f"pipeline {self.name}: topics")
        set_(self, "topics", tuple(Topic(t) if isinstance(t, str) else t for t in topics))
        if not self.tables or not self.topics:
            raise _refuse(
                f"pipeline {self.name} lacks topics or tables.", "declare at least one of each."
            )
        for what, names in (
            ("topic", [t.name for t in self.inputs]),
            ("table", [t.name for t in self.tables]),
        ):
            if len(set(names)) != len(names):
                raise _refuse(
                    f"pipeline {self.name} declares a {what} twice: {listed(sorted(names))}.",
                    "remove one.",
                )
        if (
            not timedelta(0) <= self.lateness <= LATENESS_MAX
            or not 1 <= self.records_per_task <= 10**9
        ):
            raise _refuse(
                f"pipeline {self.name}: lateness {self.lateness} or records_per_task {self.records_per_task} is out of "
                "range.",
                f"use a lateness from 0 to {LATENESS_MAX.days} days, and 1 to 10^9 records per task.",
            )
        # A plan, a log and Airflow's database show it: a key in it would be everybody's, so it is not repeated either.
        if "@" in self.warehouse:
            raise _refuse(
                f"the warehouse of pipeline {self.name} has an @, as if a user or a key stood before it.",
                "use s3://bucket/prefix; keys belong into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        if not _WAREHOUSE.fullmatch(self.warehouse):
            raise _refuse(
                f"warehouse {self.warehouse!r} is not allowed.",
                "use s3://bucket/prefix, a prefix of its own.",
            )
        if not self.job or self.job.startswith("/") or ".." in self.job.split("/"):
            raise _refuse(
                f"job {self.job!r} is no path inside the project.",
                "use e.g. 'spark_jobs/flights.py'.",
            )
        if self.begin is not None:
            try:
                if keys.check_instant(self.begin) < datetime(1970, 1, 1, tzinfo=UTC):
                    raise ValueError("before 1970, where Kafka's timestamps begin")
            except ValueError as error:
                raise _refuse(f"begin: {error}.", "use a datetime with tzinfo=UTC.") from error

    @property
    def inputs(self) -> tuple[Topic, ...]:
        """The topics as values (a name alone stands for a topic with the default decode)."""
        return tuple(t for t in self.topics if isinstance(t, Topic))

    def decode_of(self, topic: str) -> Json:
        """How `topic`'s values are read."""
        declared = next(t for t in self.inputs if t.name == topic).decode
        return declared or Json(self.tables[0].columns)

    def table(self, name: str) -> Table | None:
        """The declared table of that name (the dead letters are not among them)."""
        return next((t for t in self.tables if t.name == name), None)

    def written_columns(self) -> dict[str, tuple[Column, ...]]:
        """Columns of every stored table, the dead letters too, by table name."""
        return {**{t.name: t.written for t in self.tables}, DEAD_LETTERS: DEAD_LETTER_COLUMNS}

    def partition_by(self, table: str) -> tuple[str, ...]:
        """Partition rules of a stored table."""
        declared = self.table(table)
        return tuple(declared.partition_by) if declared else ()

    def to_spec(self) -> dict[str, Any]:
        """Return the canonical JSON form that a plan carries."""
        return {
            "format": SPEC_FORMAT,
            "name": self.name,
            "warehouse": self.warehouse,
            "job": self.job,
            "kafka": self.kafka,
            "records_per_task": self.records_per_task,
            **self._rows_spec(),
        }

    def _rows_spec(self) -> dict[str, Any]:
        topics = []
        for topic in self.inputs:
            decode = self.decode_of(topic.name)
            columns = [_column_json(c) for c in decode.columns]
            kind = {"kind": "json", "columns": columns, "tombstones": decode.tombstones}
            topics.append({"name": topic.name, "decode": kind})
        tables = [
            {
                "name": t.name,
                "columns": [_column_json(c) for c in t.columns],
                "partition_by": list(t.partition_by),
                "keys": list(t.keys),
                "combine": dict(t.combine),
            }
            for t in self.tables
        ]
        return {"topics": topics, "tables": tables}

    def fingerprint(self, job_source: bytes) -> str:
        """Digest of what decides the rows: tables, decode rules, the job's source, and our own row semantics.

        Not lateness, schedule, piece sizes or the library's version. Modules that the job imports are not seen.
        """
        rows = {"rows": self._rows_spec(), "semantics": ROW_SEMANTICS}
        digest = hashlib.sha256(encode(rows))
        digest.update(hashlib.sha256(job_source).digest())
        return digest.hexdigest()


def _column_json(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "required": column.required,
        "source": column.source,
        "parse": column.parse,
    }


def pipeline_from_spec(spec: Mapping[str, Any], *, where: str) -> Pipeline:
    """Read a plan's spec back into the value it came from; raises Corrupt or InvalidPipeline."""
    f = fields(spec, where)
    if (found := f.take("format", str)) != SPEC_FORMAT:
        raise InvalidPipeline(
            f"{where}: spec format is {found!r}, this version reads {SPEC_FORMAT!r}.",
            next_step="run the version of tallystick that made the plan, or clear the plan task.",
        )
    name, warehouse, job, kafka = (f.take(n, str) for n in ("name", "warehouse", "job", "kafka"))
    records_per_task = f.take("records_per_task", int)
    topics, tables = f.take_list("topics", _parse_topic), f.take_list("tables", _parse_table)
    f.done()
    return Pipeline(
        name=name,
        topics=topics,
        warehouse=warehouse,
        job=job,
        tables=tables,
        kafka=kafka,
        records_per_task=records_per_task,
    )


def _parse_topic(value: Any, where: str) -> Topic:
    f = fields(value, where)
    name = f.take("name", str)
    decode = f.take_fields("decode")
    f.done()
    if decode.take("kind", str) != "json":
        raise _refuse(
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


__all__ = [
    "DEAD_LETTERS",
    "LINEAGE",
    "Column",
    "Json",
    "Pipeline",
    "Table",
    "Topic",
    "pipeline_from_spec",
]
