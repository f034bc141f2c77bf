"""The audit of a whole lake: is every acknowledged record in it once, unchanged, and nothing else, whatever happened?

No code of tallystick is used, and of what it says nothing is believed that is not checked: objects come by boto3, Iceberg
metadata by fastavro, rows by pyarrow, the log by librdkafka, the truth by the producers' own notes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oracle.broker_log import PartitionLog, read_log, topic_id
from oracle.cross_checks import Aggregate, judge_accounts, judge_aggregates, judge_logs
from oracle.file_checks import check_dead_counts, check_files, check_tables, orphans, table_problems
from oracle.ledger_checks import (
    check_accounts,
    check_chain,
    check_tiling,
    read_chain,
    read_pieces,
)
from oracle.place import ROOT, Listed, Objects, Place
from oracle.problems import Problems
from oracle.produced import Sent
from oracle.reading import DEAD, LiveFile, Piece, Tables, read_ledger
from oracle.row_checks import Payload, Rows

__all__ = ["Finding", "Orphans", "Place", "audit"]


class Orphans(NamedTuple):
    """Objects that nothing names: what gc may take."""

    count: int
    bytes: int


NO_ORPHANS = Orphans(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an audit found. `problems` are the first counter-examples in words, each beginning with its kind.

    `records`: acknowledged records that stand in the lake once, dead letters among them. `payloads`: how many of them
    were compared with what was sent, column by column (rows) or byte by byte (dead letters). `logs`: how many partitions
    were read by an independent client; none of a topic that is another one by now.
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
        """No duplicate, nothing missing, and nothing else that is wrong."""
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
    """Audit a lake at rest against all that was sent to its topics.

    `acknowledged`: plan keys (or versions of records) whose commit was answered as done. `full_cover`: every record that
    was acknowledged must be committed, from the origins on; else only those inside committed intervals. `payload` maps
    value bytes to the columns that a row must have, None to a dead letter; without it only dead letters are compared.
    `values`: bytes by digest, for records that the log no longer holds. `aggregates`: per table with keys, what its rows
    of one interval must be, from the expected rows (lineage among them) of that interval. `collected`: gc has run, so
    the history may end early. `in_order`: timestamps never fell in any partition and nothing came late, so every record
    lies in the interval of its timestamp; else only none lies in an earlier one.

    Raises what boto3 and librdkafka raise where a server does not answer. Not seen: Iceberg's partition values and the
    bounds of columns that are no whole numbers (readers prune by them), the wording of a dead letter's reason.
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
            problems.say("object", f"page {missing} of the ledger is not there")
            return Finding(problems=problems.told())
        if root is None:
            problems.say("object", f"there is no {ROOT}")
            return Finding(problems=problems.told())
        chain = read_chain(objects, root, problems, collected=collected)
        check_chain(ledger, chain, acknowledged, problems, collected=collected)
        pieces = read_pieces(objects, root, ledger, problems)
        check_tiling(root, pieces, problems, full_cover=full_cover)
        check_accounts(root, pieces, problems)
        check_tables(root, chain, problems)
        listing = objects.listing()
        live = self._live(root, listing)
        check_files(pieces, live, listing, problems)
        check_dead_counts(pieces, live.get(DEAD, []), problems)
        logs = self._logs(root, pieces)
        rows = Rows(problems, pieces, self._sent, logs, payload)
        for table, files in live.items():
            rows.read(table, root["tables"][table]["columns"], files, objects)
        rows.judge(full_cover=full_cover, in_order=in_order)
        judge_logs(rows)
        judge_accounts(rows)
        judge_aggregates(rows, aggregates)
        left = orphans(root, chain, pieces, live, listing)
        return Finding(
            records=rows.records,
            duplicates=rows.duplicates,
            missing=rows.missing,
            payloads=rows.payloads,
            logs=len(logs),
            problems=problems.told(),
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
                    self._problems.say("table", text)
                for key in () if self._collected else tables.named(metadata):
                    if key not in listing:
                        self._problems.say("object", f"{key}, of table {name}'s past, is not there")
            except (FileNotFoundError, ValueError) as error:
                self._problems.say("object", f"table {name} cannot be read: {error}")
                live[name] = []
        return live

    def _logs(
        self, root: Mapping[str, Any], pieces: list[Piece]
    ) -> dict[tuple[str, int], PartitionLog]:
        """What the brokers still hold of the committed ranges; nothing of a topic that is another one by now."""
        found: dict[tuple[str, int], PartitionLog] = {}
        for topic, known in root["topics"].items():
            if topic_id(self._place.bootstrap, topic, self._place.login) != known["topic_id"]:
                continue
            ends = {
                number: max((p.ranges[topic, number][1] for p in pieces), default=0)
                for number in range(len(known["origins"]))
            }
            logs = read_log(self._place.bootstrap, topic, ends, self._place.login)
            found |= {(topic, number): log for number, log in logs.items()}
        return found
