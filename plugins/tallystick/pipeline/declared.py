"""The pipeline: topics in, tables out, one lake root. A frozen value that is validated when it is created."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tallystick.errors import listed
from tallystick.format import keys
from tallystick.format.canonical import dumps
from tallystick.format.upkeep import DEFAULT, Upkeep, check_reader_grace
from tallystick.pipeline.columns import DEAD_LETTER_COLUMNS, Column, refuse, several
from tallystick.pipeline.dead_letters import check_limit, stored
from tallystick.pipeline.formats import Format
from tallystick.pipeline.lookback import Lookback, check_lookback
from tallystick.pipeline.many_topics import Topics
from tallystick.pipeline.outputs import (
    DeclaredOutput,
    PlannedOutput,
    check_outputs,
    check_targets,
    planned,
)
from tallystick.pipeline.planned import PipelineSpec, TopicSpec
from tallystick.pipeline.registrations import DeclaredRegistration, check_registrations
from tallystick.pipeline.tables import DEAD_LETTERS, Table, partition_rule
from tallystick.pipeline.topics import DeclaredFormat, Topic, rows_form

# Increase it when the same bytes, job and declaration would give other rows: committed intervals then count as changed.
ROW_SEMANTICS = 1
RECORDS_PER_TASK = 1_000_000
# The longest time that a pipeline may wait for late records. The ledger is searched this far back for a run's grants.
LATENESS_MAX = timedelta(days=31)
# A bucket alone is refused: gc deletes what the root does not reach, which would be everything else in the bucket.
_WAREHOUSE = re.compile(r"s3://[^/\s]+(?:/[^/\s]+)+|memory://[^/\s]+(?:/[^/\s]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Topics in, tables out, one lake root.

    `kafka` is the name of a connection, never its values. `job` is a path relative to the project's folder. A boundary is
    looked up only when `lateness` has passed since it. `begin` is the declared beginning of the log: records before it
    that the topic no longer has do not count as lost. `outputs` get the rows of a committed interval's tables outside the
    lake, each once (docs/reference/outputs.md). `lookback`: the job also reads rows of earlier intervals
    (docs/how-to/look-back.md). `max_dead_letters`: a run fails if an interval has more, a count (100) or a share of its
    records (0.05); by default it fails if all of at least 10 records are dead letters (docs/how-to/dead-letters.md).
    `renamed_from` is the name that the pipeline had until now: its lake gets the new name with the next plan
    (docs/how-to/rename-a-pipeline.md). `registrations`: catalogs in which the tables are registered after each commit
    (docs/how-to/register-tables.md). `upkeep`: that of each table that declares none (docs/how-to/keep-tables-tidy.md).
    `reader_grace`: how long gc keeps versions readable after they were current; None: 24 hours.
    `rows_sha256`: only of a planned pipeline that was open, the digest of the declaration.
    """

    name: str
    topics: Sequence[Topic | Topics | str]
    warehouse: str
    job: str
    tables: Sequence[Table] = ()
    kafka: str = "default"
    lateness: timedelta = timedelta(0)
    begin: datetime | None = None
    records_per_task: int = RECORDS_PER_TASK
    outputs: Sequence[DeclaredOutput] = ()
    lookback: Lookback | None = None
    max_dead_letters: int | float | None = None
    renamed_from: str | None = None
    rows_sha256: str | None = None
    registrations: Sequence[DeclaredRegistration] = ()
    upkeep: Upkeep | None = None
    reader_grace: timedelta | None = None

    def __post_init__(self) -> None:
        keys.check_name(self.name, "pipeline")
        keys.check_name(self.kafka, "connection")
        if self.renamed_from is not None:
            keys.check_name(self.renamed_from, "pipeline")
            if self.renamed_from == self.name:
                raise refuse(
                    f"pipeline {self.name}: expected renamed_from another name, found its own.",
                    "remove renamed_from.",
                )
        set_ = object.__setattr__
        set_(self, "tables", tuple(self.tables))
        topics = several(self.topics, f"pipeline {self.name}: topics")
        set_(self, "topics", tuple(Topic(t) if isinstance(t, str) else t for t in topics))
        if not (self.tables or self.patterns) or not self.topics:
            raise refuse(
                f"pipeline {self.name}: expected at least one topic and one table, found {len(self.topics)} and "
                f"{len(self.tables)}.",
                "declare at least one of each.",
            )
        for what, names in (
            ("topic", [t.name for t in self.inputs]),
            ("table", [t.name for t in self.tables]),
        ):
            if len(set(names)) != len(names):
                raise refuse(
                    f"pipeline {self.name}: expected each {what} once, found {listed(sorted(names))}.",
                    "remove the duplicate.",
                )
        if (
            not timedelta(0) <= self.lateness <= LATENESS_MAX
            or not 1 <= self.records_per_task <= 10**9
        ):
            raise refuse(
                f"pipeline {self.name}: lateness {self.lateness} or records_per_task {self.records_per_task} is out of "
                "range.",
                f"use a lateness from 0 to {LATENESS_MAX.days} days, and 1 to 10^9 records per task.",
            )
        self._check_warehouse()
        if not self.job or self.job.startswith("/") or ".." in self.job.split("/"):
            raise refuse(
                f"job: expected a relative path inside the project, found {self.job!r}.",
                "use e.g. 'spark_jobs/flights.py'.",
            )
        if self.begin is not None:
            try:
                if keys.check_instant(self.begin) < datetime(1970, 1, 1, tzinfo=UTC):
                    raise ValueError(
                        f"expected 1970 or later (Kafka's timestamps), found {self.begin.isoformat()}"
                    )
            except ValueError as error:
                raise refuse(f"begin: {error}.", "use a datetime with tzinfo=UTC.") from error

        set_(self, "outputs", several(self.outputs, f"pipeline {self.name}: outputs"))
        check_outputs(self.planned_outputs, self.written_columns().keys())
        check_targets(self.outputs)
        registrations = several(self.registrations, f"pipeline {self.name}: registrations")
        set_(self, "registrations", registrations)
        check_registrations(registrations, [o.name for o in self.outputs])
        self._check_tables()
        for topic in self.inputs:
            if not topic.follows:
                self.topic_spec(topic.name)  # a default is checked here, after the tables
        if not self.is_open:
            check_lookback(self.lookback, self.written_columns())
        check_limit(self.max_dead_letters, f"pipeline {self.name}: max_dead_letters")

    def _check_warehouse(self) -> None:
        # Plans, logs and Airflow's database contain the warehouse, so a key in it would be public. For the same reason
        # the message does not repeat the warehouse.
        if "@" in self.warehouse:
            raise refuse(
                f"warehouse of pipeline {self.name}: expected no @ (it may follow a user name or a key), found one.",
                "use s3://bucket/prefix; set keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        if not _WAREHOUSE.fullmatch(self.warehouse):
            raise refuse(
                f"warehouse: expected s3://bucket/prefix, found {self.warehouse!r}.",
                f"use e.g. s3://lake/{self.name}: a bucket, and a prefix in it that nothing else uses.",
            )

    def _check_tables(self) -> None:
        names = [topic.name for topic in self.inputs]
        for table in self.tables:
            if table.topic is not None and table.topic not in names:
                raise refuse(
                    f"table {table.name}: expected topic one of {listed(names)}, found {table.topic!r}.",
                    "name a topic of the pipeline.",
                )
            topic = next((t for t in self.inputs if t.name == table.topic), None)
            if table.follows and topic is not None and not topic.has_columns:
                raise refuse(
                    f"table {table.name}: expected the columns of topic {topic.name!r}, found none there.",
                    "declare them in the topic's format or in the table; or, with a registry, schema='follow'.",
                )
        without = [topic.name for topic in self.inputs if not topic.has_columns]
        if without and not self._first_columns():
            raise refuse(
                f"topic {without[0]}: expected the columns of its values, found none there, and none in a first table.",
                "declare them in the topic's format: decode=Json([Column(...), ...]); or declare first a table with "
                "columns.",
            )
        if self.lookback is not None and self.is_open:
            raise refuse(
                f"pipeline {self.name}: expected no lookback together with columns of schemas or topics by a pattern, "
                "found one.",
                "declare the topics and the columns of the tables.",
            )
        if self.reader_grace is not None:
            check_reader_grace(self.reader_grace)
        if self.upkeep is not None and self.upkeep.sort_by:
            raise refuse(
                f"pipeline {self.name}: upkeep: expected no sort_by, because tables have different columns, found "
                f"{listed(self.upkeep.sort_by)}.",
                "declare it with the table: Table(..., upkeep=Upkeep(sort_by=[...])).",
            )

    @property
    def patterns(self) -> tuple[Topics, ...]:
        """The topics that are declared by a pattern."""
        return tuple(t for t in self.topics if isinstance(t, Topics))

    def registry_formats(self) -> list[tuple[str, str, DeclaredFormat]]:
        """Return (topic, `value` or `key`, format) of each format that reads its schemas from a registry."""
        return [found for topic in self.inputs for found in topic.registry_formats()]

    @property
    def is_open(self) -> bool:
        """True if a plan decides about topics or columns: topics by a pattern, columns of schemas or of topics."""
        return bool(self.patterns) or any(
            (*(t.follows for t in self.inputs), *(t.follows for t in self.tables))
        )

    @property
    def targets(self) -> dict[str, str]:
        """The target of each registration by name."""
        return {one.name: one.target for one in self.registrations}

    @property
    def planned_outputs(self) -> tuple[PlannedOutput, ...]:
        """The outputs in the form that a plan contains."""
        return tuple(planned(output) for output in self.outputs)

    @property
    def inputs(self) -> tuple[Topic, ...]:
        """The topics as Topic values (a name alone means a topic with the default decode)."""
        return tuple(t for t in self.topics if isinstance(t, Topic))

    def decode_of(self, topic: str) -> Format:
        """Return the format of `topic`'s values."""
        return self.topic_spec(topic).decode

    def columns_of(self, topic: str) -> tuple[Column, ...]:
        """Return the columns of `topic`'s records: those of its values, its keys and its headers."""
        return self.topic_spec(topic).columns

    def topic_spec(self, topic: str) -> TopicSpec:
        """Return `topic` in the form that a plan contains."""
        declared = next(t for t in self.inputs if t.name == topic)
        return TopicSpec(
            name=topic,
            decode=declared.value_format(self._first_columns()),
            key=declared.key_format,
            headers=declared.headers,
        )

    def table(self, name: str) -> Table | None:
        """Return the declared table with that name, or None (`dead_letters` is not a declared table)."""
        return next((t for t in self.tables if t.name == name), None)

    def written_columns(self) -> dict[str, tuple[Column, ...]]:
        """Return the columns of every stored table, including `dead_letters`, by table name."""
        return {**{t.name: t.written for t in self.tables}, DEAD_LETTERS: DEAD_LETTER_COLUMNS}

    def partition_by(self, table: str) -> tuple[str, ...]:
        """Return the partition rules of a stored table."""
        declared = self.table(table)
        return tuple(declared.partition_by) if declared else ()

    def dropped(self, table: str) -> tuple[str, ...]:
        """Return the names of the columns that a stored table is not to have any more."""
        declared = self.table(table)
        return tuple(declared.dropped) if declared else ()

    def upkeep_of(self, table: str) -> Upkeep:
        """Return the upkeep of a stored table: its own, or that of the pipeline."""
        declared = self.table(table)
        own = declared.upkeep if declared else None
        return own or self.upkeep or DEFAULT

    def to_spec(self) -> dict[str, Any]:
        """Return the canonical JSON form that a plan contains."""
        return {"format": PipelineSpec.FORMAT, **self._spec().to_json()}

    def _spec(self) -> PipelineSpec:
        return PipelineSpec(
            name=self.name,
            warehouse=self.warehouse,
            job=self.job,
            kafka=self.kafka,
            records_per_task=self.records_per_task,
            topics=tuple(self.topic_spec(t.name) for t in self.inputs),
            tables=tuple(self.tables),
            outputs=self.planned_outputs,
            lookback=self.lookback,
            max_dead_letters=stored(self.max_dead_letters),
            rows_sha256=self.rows_sha256,
        )

    def fingerprint(self, job_source: bytes) -> str:
        """Return the digest of all that determines the rows.

        These are the tables, decode rules, lookback, the job's source, and ROW_SEMANTICS. Not included are lateness,
        schedule, sizes of input splits, outputs, `max_dead_letters`, the library's version, modules that the job
        imports, and what only a plan decides: the topics of a pattern, and the columns of schemas.
        """
        digest = hashlib.sha256((self.rows_sha256 or self.declared_rows_sha256()).encode())
        digest.update(hashlib.sha256(job_source).digest())
        return digest.hexdigest()

    def declared_rows_sha256(self) -> str:
        """Return the digest of the part of the declaration that determines the rows."""
        if self.is_open:
            rows: dict[str, Any] = {
                "topics": [self._declared_form(topic) for topic in self.topics],
                "tables": [_with_rules(table).to_json() for table in self.tables],
            }
        else:
            spec = self._spec().to_json()
            rows = {name: spec[name] for name in ("topics", "tables", "lookback")}
        return hashlib.sha256(dumps({"rows": rows, "semantics": ROW_SEMANTICS})).hexdigest()

    def _declared_form(self, topic: Topic | Topics | str) -> dict[str, Any]:
        """Return a topic of an open pipeline in a form that is the same for the same declaration."""
        if isinstance(topic, Topics):
            return topic.to_json()
        assert isinstance(topic, Topic)
        return rows_form(topic, self._first_columns())

    def _first_columns(self) -> Sequence[Column]:
        """Return the columns of the first table, which a topic without columns of its own has."""
        return self.tables[0].columns if self.tables else ()


def _with_rules(table: Table) -> Table:
    """Return a table with its partition rules in one form, also if its columns are not known yet."""
    rules = [str(partition_rule(rule)) for rule in table.partition_by]
    return replace(table, partition_by=rules)
