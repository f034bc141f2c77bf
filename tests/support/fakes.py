"""A Kafka log in memory that keeps the promises which planning relies on, and a stage without Spark that reads it.

The log answers as 2 brokers' worth of protocol would: log starts, boundaries by the first data record at or after an
instant, open transactions, leader epochs. The stage writes real Parquet through the engine's own writer, so that
everything after it (commit, tables, verify, SQL) runs on the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
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
from tallystick.lake import Lake
from tallystick.operations.lookback import earlier
from tallystick.pipeline import DEAD_LETTERS, Pipeline, Table, pipeline_from_spec
from tallystick.tables.schema import arrow_schema

Kind = Literal["data", "dead", "aborted", "control", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRecord:
    """One offset of the log. `dead` is a data record whose value does not decode; `absent` was compacted away."""

    at_ms: int
    kind: Kind = "data"
    value: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0

    @property
    def is_data(self) -> bool:
        """True for what a boundary may stand before: aborted records too."""
        return self.kind in ("data", "dead", "aborted")


@dataclass(slots=True)
class FakePartition:
    """Records by offset. `log_start`: the first that is still there; `stable`: the last stable offset, None for all."""

    records: list[FakeRecord] = field(default_factory=list)
    log_start: int = 0
    stable: int | None = None

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.records)


@dataclass(slots=True)
class FakeTopic:
    """One incarnation of a topic, as `plan.TopicView` wants it."""

    topic_id: str
    cluster_id: str
    compacted: bool
    partitions: list[FakePartition]


class FakeLog:
    """Topics in memory: `plan.Log` on one side, a producer's and an operator's deeds on the other."""

    def __init__(self, *, cluster_id: str = "fake-cluster") -> None:
        self.cluster_id = cluster_id
        self.topics: dict[str, FakeTopic] = {}
        self.epoch = 0
        self._incarnations = 0

    # ------------------------------------------------------------ what planning asks

    def describe(self, topics: Sequence[str]) -> Mapping[str, FakeTopic]:
        """As plan.Log says; raises IdentityChanged for a topic that is not there, as the client does."""
        return {name: self._topic(name) for name in topics}

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        """As plan.Log says: the first data record at or after `at_ms`, searched from `floors` on."""
        found: list[Position] = []
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
                    f"{topic}[{number}]: offset {offset} lies behind the last stable offset {partition.stable}.",
                    hint="try again when the transaction has ended.",
                )
            found.append(
                Position(offset=offset, leader_epoch=self._epoch_before(partition, offset))
            )
        return found

    def log_starts(self, topic: str) -> Sequence[int]:
        """As earlier.Log says."""
        return [partition.log_start for partition in self._topic(topic).partitions]

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        """As plan.Log says, with every record for a batch: ten before the position, or two that are a day older."""
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
        """As plan.Log says: the record before a position must still have the epoch that the position knows."""
        problems: list[str] = []
        for number, position in enumerate(positions):
            partition = self._topic(topic).partitions[number]
            now = self._epoch_before(partition, position.offset)
            if position.offset > partition.end:
                problems.append(
                    f"{topic}[{number}] ends at {partition.end}, before {position.offset}."
                )
            elif position.leader_epoch >= 0 <= now != position.leader_epoch:
                problems.append(
                    f"{topic}[{number}]: epoch {now} before {position.offset}, not {position.leader_epoch}."
                )
        return problems

    # ------------------------------------------------------------ what producers and operators do

    def create(self, topic: str, *, partitions: int = 1, compacted: bool = False) -> None:
        """Create a topic, or delete and recreate it: each time it is another incarnation."""
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
        have = self._topic(topic).partitions
        have.extend(FakePartition() for _ in range(partitions - len(have)))

    def expire(self, topic: str, partition: int, *, before: int) -> None:
        """Let retention delete the records before an offset."""
        found = self._topic(topic).partitions[partition]
        found.log_start = max(found.log_start, before)

    def hold(self, topic: str, partition: int, *, stable: int | None) -> None:
        """Leave a transaction open from `stable` on; None ends it."""
        self._topic(topic).partitions[partition].stable = stable

    def rewrite(self, topic: str, partition: int, *, start: int) -> None:
        """Truncate the log at `start` and let a new leader write other records in their place (KIP-101)."""
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
        found = self.topics.get(name)
        if found is None:
            raise IdentityChanged(
                f"topic {name!r} does not exist on the cluster at fake.",
                hint="check its name.",
            )
        return found

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
    keep: Callable[[FakeRecord], bool] = lambda _: True,
) -> str:
    """Stage a plan as a Spark job would, one task per partition, and return its report's key.

    The transform is the identity on columns of the same name, over the records that `keep` lets through; an
    aggregating table sums, per key, the columns that a record's value has.
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
                    _sort_in(rows, pipeline, topic.name, number, offset, record)
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
    files = _write(lake, plan, pipeline, rows, attempt)
    report = Report(
        key=keys.report(plan.interval.start, plan.interval.end, attempt, lake.runtime.uuid()),
        plan=plan.key,
        plan_sha256=plan.sha256,
        fingerprint=plan.fingerprint,
        attempt=attempt,
        library="test",
        files=files,
        accounts=tuple(accounts),
        lookback=_looked(lake, plan, pipeline),
    )
    lake.put_new(report.key, report.encode())
    return report.key


def _looked(lake: Lake, plan: Plan, pipeline: Pipeline) -> LookbackUsed | None:
    """What a job that looks back would say it saw of what is committed."""
    if pipeline.lookback is None:
        return None
    return earlier(lake, plan, pipeline.lookback).used(plan.fingerprint, {})


def _sort_in(
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
        broken = {**lineage, "key": None, "value": b"{", "headers": None, "reason": "not JSON"}
        rows[DEAD_LETTERS].setdefault(place, []).append(broken)
    if record.kind != "data":
        return
    for table in pipeline.tables:
        own = {c.name: record.value.get(c.name) for c in table.columns}
        rows[table.name].setdefault(place, []).append(
            own if table.aggregates else {**own, **lineage}
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
                    source=source,
                    upload=prefix.upload,
                    folder=Path(folder),
                ) as writer:
                    writer.write(pa.Table.from_pylist(part, schema=arrow_schema(planned.columns)))
                    files.extend(writer.close())
    return tuple(files)


def _combined(table: Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in table.keys)
        into = groups.setdefault(
            key, dict.fromkeys(table.combine, 0) | dict(zip(table.keys, key, strict=True))
        )
        for name in table.combine:
            into[name] += row[name] or 0
    return list(groups.values())
