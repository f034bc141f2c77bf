"""A Kafka log in memory with the guarantees that planning relies on, and a stage without Spark that reads it.

The log answers as brokers do: log starts, boundaries by the first data record at or after an instant, open transactions,
leader epochs. The stage writes real Parquet with the engine's writer, so that everything after it (commit, tables,
verify, SQL) runs on real files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from tallystick.engine.parquet import TableWriter
from tallystick.engine.upload import AttemptPrefix
from tallystick.errors import IdentityChanged, NotYet
from tallystick.format import keys
from tallystick.format.lookback import LookbackUsed
from tallystick.format.offsets import Position
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport, RangeAccount, Report
from tallystick.kafka.wire import TopicRetention
from tallystick.lake import Lake
from tallystick.operations.lookback import read_lookback
from tallystick.pipeline import DEAD_LETTERS, Pipeline, Table, pipeline_from_spec
from tallystick.tables.schema import arrow_schema

Kind = Literal["data", "dead", "aborted", "control", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRecord:
    """One offset of the log. `dead` is a data record whose value does not decode; `absent` was removed by compaction."""

    at_ms: int
    kind: Kind = "data"
    value: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0

    @property
    def is_data(self) -> bool:
        """True if a boundary may be before this offset; aborted records count, too."""
        return self.kind in ("data", "dead", "aborted")


@dataclass(slots=True)
class FakePartition:
    """Records by offset. `log_start`: the first existing offset; `stable`: the last stable offset, None for the end."""

    records: list[FakeRecord] = field(default_factory=list)
    log_start: int = 0
    stable: int | None = None

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.records)


@dataclass(slots=True)
class FakeTopic:
    """One incarnation of a topic; it implements `TopicDescription`."""

    topic_id: str
    cluster_id: str
    compacted: bool
    partitions: list[FakePartition]
    kept: TopicRetention | None = None


class FakeLog:
    """Topics in memory: it implements `KafkaLog`, and has the actions of producers and operators."""

    def __init__(self, *, cluster_id: str = "fake-cluster") -> None:
        self.cluster_id = cluster_id
        self.topics: dict[str, FakeTopic] = {}
        self.epoch = 0
        self._incarnations = 0

    # ------------------------------------------------------------ KafkaLog

    def describe(self, topics: Sequence[str]) -> Mapping[str, FakeTopic]:
        """Return the topics; raises IdentityChanged for a topic that does not exist."""
        return {name: self._topic(name) for name in topics}

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        """Return the first data record at or after `at_ms` per partition, searched from `floors` on."""
        positions: list[Position] = []
        partitions = self._topic(topic).partitions
        for number, partition in enumerate(partitions):
            low = floors[number] if number < len(floors) else 0
            offset = next(
                (
                    o
                    for o in range(max(low, partition.log_start), partition.end)
                    if partition.records[o].is_data
                    and at_ms <= partition.records[o].at_ms <= latest_ms
                ),
                partition.end,
            )
            if partition.stable is not None and offset > partition.stable:
                raise NotYet(
                    f"{topic}[{number}]: offset {offset} is after the last stable offset {partition.stable}.",
                    hint="try again after the end of the transaction.",
                )
            positions.append(
                Position(offset=offset, leader_epoch=self._epoch_before(partition, offset))
            )
        return positions

    @property
    def described(self) -> Mapping[str, FakeTopic]:
        """The topics, as a planner has described them."""
        return self.topics

    def log_starts(self, topic: str) -> Sequence[int]:
        """Return the first offset of each partition."""
        return [partition.log_start for partition in self._topic(topic).partitions]

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        """See KafkaLog. Each record counts as a batch: ten before the position are a proof, or two a day older."""
        partitions = self._topic(topic).partitions
        found: dict[int, int] = {}
        for number, position in enumerate(positions):
            start = partitions[number].log_start
            before = [
                r.at_ms for r in partitions[number].records[start : position.offset] if r.is_data
            ]
            old = [at for at in before if at <= at_ms - 86_400_000]
            if start > 0 and len(before) < 10 and len(old) < 2:
                found[number] = start
        return found

    def diverged(self, topic: str, positions: Sequence[Position]) -> Sequence[str]:
        """Return a message for each position whose preceding record no longer has the epoch of the position."""
        problems: list[str] = []
        for number, position in enumerate(positions):
            partition = self._topic(topic).partitions[number]
            epoch = self._epoch_before(partition, position.offset)
            if position.offset > partition.end:
                problems.append(
                    f"{topic}[{number}] ends at {partition.end}, before {position.offset}."
                )
            elif position.leader_epoch >= 0 <= epoch != position.leader_epoch:
                problems.append(
                    f"{topic}[{number}]: epoch {epoch} before {position.offset}, not {position.leader_epoch}."
                )
        return problems

    # ------------------------------------------------------------ actions of producers and operators

    def create(self, topic: str, *, partitions: int = 1, compacted: bool = False) -> None:
        """Create a topic, or delete and recreate it; each call creates a new incarnation."""
        self._incarnations += 1
        self.topics[topic] = FakeTopic(
            topic_id=f"topic-id-{self._incarnations}",
            cluster_id=self.cluster_id,
            compacted=compacted,
            partitions=[FakePartition() for _ in range(partitions)],
        )

    def append(
        self, topic: str, partition: int, at: datetime, kind: Kind = "data", /, **value: Any
    ) -> int:
        """Append one record with a timestamp and return its offset."""
        records = self._topic(topic).partitions[partition].records
        at_ms = round(at.timestamp() * 1000)
        records.append(FakeRecord(at_ms=at_ms, kind=kind, value=value, epoch=self.epoch))
        return len(records) - 1

    def grow(self, topic: str, *, partitions: int) -> None:
        """Add partitions, as `kafka-topics --alter` does."""
        existing = self._topic(topic).partitions
        existing.extend(FakePartition() for _ in range(partitions - len(existing)))

    def expire(self, topic: str, partition: int, *, before: int) -> None:
        """Let retention delete the records before an offset."""
        log = self._topic(topic).partitions[partition]
        log.log_start = max(log.log_start, before)

    def hold(self, topic: str, partition: int, *, stable: int | None) -> None:
        """Leave a transaction open from `stable` on; None ends it."""
        self._topic(topic).partitions[partition].stable = stable

    def rewrite(self, topic: str, partition: int, *, start: int) -> None:
        """Truncate the log at `start`, and write other records there as a new leader (KIP-101)."""
        self.epoch += 1
        records = self._topic(topic).partitions[partition].records
        records[start:] = [replace(r, epoch=self.epoch) for r in records[start:]]

    def read(
        self, topic: str, partition: int, start: int, end: int
    ) -> Iterator[tuple[int, FakeRecord]]:
        """Yield (offset, record) of a range."""
        for offset in range(start, end):
            yield offset, self._topic(topic).partitions[partition].records[offset]

    def _topic(self, name: str) -> FakeTopic:
        topic = self.topics.get(name)
        if topic is None:
            raise IdentityChanged(
                f"topic {name!r} does not exist on the cluster at fake.",
                hint="check its name.",
            )
        return topic

    @staticmethod
    def _epoch_before(partition: FakePartition, offset: int) -> int:
        known = partition.log_start < offset <= partition.end
        return partition.records[offset - 1].epoch if known else -1


# ---------------------------------------------------------------- stage without Spark


def stage(
    lake: Lake,
    log: FakeLog,
    plan_key: str,
    *,
    attempt: str = "attempt-1",
    report_key: keys.ReportKey | None = None,
    keep: Callable[[FakeRecord], bool] = lambda _: True,
    windows: Mapping[str, Sequence[dict[str, Any]]] = MappingProxyType({}),
) -> str:
    """Stage a plan as a Spark job would, with one task per partition, and return the key of its report.

    The transform returns the columns of the same name, for the records for which `keep` is true; an aggregating table
    sums, per key, the columns that a record's value has. `report_key`: the key of the report, if a claim announced it.
    `windows`: rows by table that a job with a lookback makes of earlier records.
    """
    plan = lake.plan(plan_key)
    assert plan is not None
    pipeline = pipeline_from_spec(plan.spec, where=plan_key)
    rows: dict[str, dict[tuple[str, int], list[dict[str, Any]]]] = {t.name: {} for t in plan.tables}
    accounts: list[RangeAccount] = []
    for topic in plan.topics:
        for number, planned in enumerate(topic.ranges):
            counts = {"records": 0, "dead_letters": 0, "aborted": 0, "control": 0, "absent": 0}
            for offset, record in log.read(
                keys.kafka_topic(topic.name), number, planned.readable_from, planned.end
            ):
                counts[
                    {"data": "records", "dead": "dead_letters"}.get(record.kind, record.kind)
                ] += 1
                if record.kind != "data" or keep(record):
                    _add_rows(rows, pipeline, topic.name, number, offset, record)
            accounts.append(
                RangeAccount(
                    topic=topic.name,
                    partition=number,
                    start=planned.start,
                    end=planned.end,
                    lost=planned.lost,
                    **counts,
                )
            )
    for table, made in windows.items():
        rows[table].setdefault((pipeline.inputs[0].name, 0), []).extend(made)
    files = _write(lake, plan, pipeline, rows, attempt)
    report = Report(
        key=report_key
        or keys.report(plan.interval.start, plan.interval.end, attempt, lake.runtime.uuid()),
        plan=plan.key,
        plan_sha256=plan.sha256,
        fingerprint=plan.fingerprint,
        attempt=attempt,
        library="test",
        files=files,
        accounts=tuple(accounts),
        lookback=_lookback(lake, plan, pipeline),
    )
    lake.put_new(report.key, report.encode())
    return report.key


def _lookback(lake: Lake, plan: Plan, pipeline: Pipeline) -> LookbackUsed | None:
    """Return what a job with lookback would report of the committed rows that it read."""
    if pipeline.lookback is None:
        return None
    return read_lookback(lake, plan, pipeline.lookback).used(plan.fingerprint, {})


def _add_rows(
    rows: dict[str, dict[tuple[str, int], list[dict[str, Any]]]],
    pipeline: Pipeline,
    topic: str,
    partition: int,
    offset: int,
    record: FakeRecord,
) -> None:
    lineage = {
        "_topic": topic,
        "_kafka_partition": partition,
        "_offset": offset,
        "_timestamp": datetime.fromtimestamp(record.at_ms / 1000, UTC),
    }
    place = (topic, partition)
    if record.kind == "dead":
        dead_letter = {**lineage, "key": None, "value": b"{", "headers": None}
        reason = {"kind": "json", "field": None, "detail": "not JSON", "reason": "json: not JSON"}
        dead_letter |= reason
        rows[DEAD_LETTERS].setdefault(place, []).append(dead_letter)
    if record.kind != "data":
        return
    for table in pipeline.tables:
        values = {c.name: record.value.get(c.field) for c in table.columns}
        rows[table.name].setdefault(place, []).append(
            values if table.aggregates else {**values, **lineage}
        )


def _write(
    lake: Lake,
    plan: Plan,
    pipeline: Pipeline,
    rows: dict[str, dict[tuple[str, int], list[dict[str, Any]]]],
    attempt: str,
) -> tuple[FileReport, ...]:
    files: list[FileReport] = []
    with TemporaryDirectory() as folder:
        for planned in plan.tables:
            declared = pipeline.table(planned.name)
            batches: dict[tuple[str, int] | None, list[dict[str, Any]]] = {**rows[planned.name]}
            if declared is not None and declared.aggregates:
                batches = {
                    None: _combined(declared, [r for part in batches.values() for r in part])
                }
            for task, (source, part) in enumerate(batches.items()):
                if not part:
                    continue
                prefix = AttemptPrefix(
                    store=lake.store,
                    runtime=lake.runtime,
                    plan=plan.key,
                    attempt=attempt,
                    task=f"{task:05d}",
                )
                with TableWriter(
                    planned,
                    partition_by=pipeline.partition_by(planned.name),
                    upload=prefix.upload,
                    folder=Path(folder),
                ) as writer:
                    made = pa.Table.from_pylist(part, schema=arrow_schema(planned.columns))
                    writer.write(made, source=source)
                    files.extend(writer.close())
    return tuple(files)


def _combined(table: Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in table.keys)
        group = groups.setdefault(
            key, dict.fromkeys(table.combine, 0) | dict(zip(table.keys, key, strict=True))
        )
        for name in table.combine:
            group[name] += row[name] or 0
    return list(groups.values())
