"""The audit of a whole lake: every acknowledged record is in it once, unchanged, and nothing else, after any failure.

The audit uses no code of tallystick and checks everything that tallystick wrote. It reads objects with boto3, Iceberg
metadata with fastavro, rows with pyarrow, the log with librdkafka, and compares them with the producers' own notes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oracle.broker_log import PartitionLog, read_log, topic_id
from oracle.cross_checks import Aggregate, check_accounts_against_rows, check_aggregates, check_logs
from oracle.file_checks import check_dead_counts, check_files, check_tables, orphans, table_problems
from oracle.ledger_checks import (
    check_accounts,
    check_chain,
    check_tiling,
    read_chain,
    read_intervals,
)
from oracle.place import ROOT, Listed, Objects, Place
from oracle.problems import Problems
from oracle.produced import Sent
from oracle.reading import DEAD, CommittedInterval, LiveFile, Tables, read_ledger
from oracle.row_checks import Payload, Rows

__all__ = ["Finding", "Orphans", "Place", "audit"]


class Orphans(NamedTuple):
    """Objects that nothing names: gc may delete them."""

    count: int
    bytes: int


NO_ORPHANS = Orphans(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of an audit. `problems` are the first counter-examples as text, each beginning with its kind.

    `records`: acknowledged records that are in the lake once, including dead letters. `payloads`: how many of them were
    compared with what was sent, column by column (rows) or byte by byte (dead letters). `logs`: how many partitions were
    read by an independent client; none of a topic that was created again since.
    """

    records: int = 0
    duplicates: int = 0
    missing: int = 0
    payloads: int = 0
    logs: int = 0
    problems: tuple[str, ...] = ()
    orphans: Orphans = NO_ORPHANS

    @property
    def ok(self) -> bool:
        """True without duplicates, missing records and other problems."""
        return not (self.problems or self.duplicates or self.missing)

    def __str__(self) -> str:
        figures = f"{self.records} records, {self.duplicates} duplicates, {self.missing} missing"
        return "\n  ".join((f"{figures}, {self.orphans.count} orphans", *self.problems))


def audit(
    place: Place,
    sent: Iterable[Sent],
    *,
    acknowledged: Collection[str] = (),
    full_cover: bool = True,
    payload: Callable[[bytes | None], Mapping[str, Any] | None] | None = None,
    values: Mapping[str, bytes] | None = None,
    aggregates: Mapping[str, Aggregate] | None = None,
    collected: bool = False,
    in_order: bool = False,
) -> Finding:
    """Audit a lake to which nothing writes against all records that were sent to its topics.

    `acknowledged`: plan keys (or versions of records) whose commit was acknowledged. `full_cover`: every acknowledged
    record must be committed, from the origins on; otherwise only those inside committed intervals. `payload` maps value
    bytes to the expected columns of a row, None for a dead letter; without it only dead letters are compared. `values`:
    bytes by digest, for records that the log no longer has. `aggregates`: per table with keys, a function from the
    expected rows of one interval (with lineage) to the table's rows. `collected`: gc has run, so the history may end
    early. `in_order`: timestamps never decreased in a partition and no record was late, so every record is in the
    interval of its timestamp; otherwise a record may be in a later one, never in an earlier one.

    Raises the errors of boto3 and librdkafka if a server does not answer. Not checked: Iceberg's partition values, the
    bounds of columns that are not whole numbers (readers prune by them), the text of a dead letter's reason.
    """
    objects = Objects(place)
    try:
        return _Audit(objects, place, list(sent), collected).run(
            tuple(acknowledged),
            full_cover,
            in_order,
            Payload(payload, values or {}),
            aggregates or {},
        )
    finally:
        objects.close()


class _Audit:
    def __init__(self, objects: Objects, place: Place, sent: list[Sent], collected: bool) -> None:
        self._objects, self._place = objects, place
        self._sent, self._collected = sent, collected
        self._problems = Problems()

    def run(
        self,
        acknowledged: tuple[str, ...],
        full_cover: bool,
        in_order: bool,
        payload: Payload,
        aggregates: Mapping[str, Aggregate],
    ) -> Finding:
        objects, problems, collected = self._objects, self._problems, self._collected
        root = objects.find(ROOT)
        try:
            ledger = read_ledger(objects, root or {"pages": []})
        except FileNotFoundError as missing:
            problems.add("object", f"page {missing} of the ledger does not exist")
            return Finding(problems=problems.lines())
        if root is None:
            problems.add("object", f"{ROOT} does not exist")
            return Finding(problems=problems.lines())
        chain = read_chain(objects, root, problems, collected=collected)
        check_chain(ledger, chain, acknowledged, problems, collected=collected)
        intervals = read_intervals(objects, root, ledger, problems)
        check_tiling(root, intervals, problems, full_cover=full_cover)
        check_accounts(root, intervals, problems)
        check_tables(root, chain, problems)
        listing = objects.listing()
        live = self._live(root, listing)
        check_files(intervals, live, listing, problems)
        check_dead_counts(intervals, live.get(DEAD, []), problems)
        logs = self._logs(root, intervals)
        rows = Rows(problems, intervals, self._sent, logs, payload)
        for table, files in live.items():
            rows.read(table, root["tables"][table]["columns"], files, objects)
        rows.check(full_cover=full_cover, in_order=in_order)
        check_logs(rows)
        check_accounts_against_rows(rows)
        check_aggregates(rows, aggregates)
        left = orphans(root, chain, intervals, live, listing)
        return Finding(
            records=rows.records,
            duplicates=rows.duplicates,
            missing=rows.missing,
            payloads=rows.payloads,
            logs=len(logs),
            problems=problems.lines(),
            orphans=Orphans(len(left), sum(listing[key].size_bytes for key in left)),
        )

    def _live(
        self, root: Mapping[str, Any], listing: Mapping[str, Listed]
    ) -> dict[str, list[LiveFile]]:
        tables = Tables(self._objects)
        live: dict[str, list[LiveFile]] = {}
        for name, table in root["tables"].items():
            try:
                live[name] = tables.live(table["metadata"])
                metadata = tables.metadata(table["metadata"])
                for text in table_problems(name, table, metadata):
                    self._problems.add("table", text)
                for key in () if self._collected else tables.named(metadata):
                    if key not in listing:
                        self._problems.add(
                            "object", f"{key}, of table {name}'s history, does not exist"
                        )
            except (FileNotFoundError, ValueError) as error:
                self._problems.add("object", f"table {name} cannot be read: {error}")
                live[name] = []
        return live

    def _logs(
        self, root: Mapping[str, Any], intervals: list[CommittedInterval]
    ) -> dict[tuple[str, int], PartitionLog]:
        """Read the committed ranges from the brokers, except topics that were created again since."""
        partition_logs: dict[tuple[str, int], PartitionLog] = {}
        for topic, known in root["topics"].items():
            if topic_id(self._place.bootstrap, topic, self._place.login) != known["topic_id"]:
                continue
            ends = {
                number: max((p.ranges[topic, number][1] for p in intervals), default=0)
                for number in range(len(known["origins"]))
            }
            logs = read_log(self._place.bootstrap, topic, ends, self._place.login)
            partition_logs |= {(topic, number): log for number, log in logs.items()}
        return partition_logs
