"""Checks of the rows: every acknowledged record is in each table or in dead_letters, once, as it was sent."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from oracle.broker_log import Headers, PartitionLog
from oracle.place import Objects
from oracle.problems import Problems
from oracle.produced import Sent, digest
from oracle.reading import DEAD, LINEAGE, CommittedInterval, LiveFile, Partition, rows_of

Spot = tuple[str, int, int]
Row = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
# `_timestamp` holds the years 1 to 9999. A time outside is stored as the nearest of them.
_FIRST_MS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // _MS
# A record that is further ahead of the planner's clock belongs to the interval in which it arrives.
_AHEAD_MS = 3_600_000
# Single-value serialisation of whole numbers (Iceberg spec, Appendix D).
_WIDTH = {4: "<i", 8: "<q"}
_WHOLE = frozenset({"int", "long"})
_UNITS = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _partition_problems(file: LiveFile, rows: pa.Table, names: Mapping[int, str]) -> Iterator[str]:
    """Yield a row whose day or hour is not that of its file's partition: readers do not look for it there."""
    for number, transform, value in file.partition:
        unit = _UNITS.get(transform)
        if unit is None:
            continue
        # A day may be stored as a date.
        found = (value - _EPOCH.date()).days if isinstance(value, date) else value
        for at in rows[names[number]].to_pylist():
            if (at - _EPOCH) // unit != found:
                yield f"{file.key} is of {transform} {value}, and has a row of {at.isoformat()}"
                break


@dataclass(frozen=True, slots=True)
class Payload:
    """The expected content of records: `columns` of a row by its value (None: a dead letter), `values` by digest."""

    columns: Callable[[bytes | None], Row | None] | None
    values: Mapping[str, bytes]


class Rows:
    """The rows of every table, compared with the producer's log and with the records that the topic still has."""

    def __init__(
        self,
        problems: Problems,
        intervals: list[CommittedInterval],
        sent: list[Sent],
        logs: Mapping[Partition, PartitionLog],
        payload: Payload,
    ) -> None:
        self.problems, self.intervals, self.logs, self.payload = problems, intervals, logs, payload
        self.sent: dict[Spot, list[Sent]] = defaultdict(list)
        self._unplaced: Counter[tuple[str, int, str]] = Counter()
        for record in sent:
            if record.offset is not None:
                self.sent[record.topic, record.partition, record.offset].append(record)
            elif record.outcome == "ok":
                problems.add(
                    "sent",
                    f"{record} is acknowledged and has no offset: the producer's log is damaged",
                )
            elif record.outcome == "unknown":
                self._unplaced[record.topic, record.partition, record.sha256] += 1
        self.rows: dict[str, dict[Spot, Row]] = {}
        self.aggregated: dict[str, dict[str, list[Row]]] = {}
        self._owner = {
            key: p
            for p in intervals
            for f in (p.report or {}).get("files", ())
            for key in [f["key"]]
        }
        self.records = self.duplicates = self.missing = self.payloads = 0

    def read(
        self, table: str, columns: list[dict[str, Any]], files: Iterable[LiveFile], objects: Objects
    ) -> None:
        """Read all rows of a table's files."""
        names = {c["name"] for c in columns}
        whole = [(c["name"], c["id"]) for c in columns if c["type"] in _WHOLE]
        by_id = {c["id"]: c["name"] for c in columns}
        spots: dict[Spot, Row] | None = {} if names.issuperset(LINEAGE) else None
        if spots is None:
            self.aggregated[table] = defaultdict(list)
        else:
            self.rows[table] = spots
        for file in files:
            try:
                rows = rows_of(objects, file.key, columns)
            except (FileNotFoundError, ValueError) as error:
                self.problems.add("object", f"table {table}: {file.key} cannot be read: {error}")
                continue
            if rows.num_rows != file.rows:
                self.problems.add(
                    "files", f"{file.key} has {rows.num_rows} rows, in its manifest {file.rows}"
                )
            for text in _partition_problems(file, rows, by_id):
                self.problems.add("partition", text)
            if spots is None:
                self.aggregated[table][file.key].extend(rows.to_pylist())
                continue
            for row in rows.to_pylist():
                self._place(table, spots, row, file, whole)

    def _place(
        self,
        table: str,
        spots: dict[Spot, Row],
        row: Row,
        file: LiveFile,
        whole: Iterable[tuple[str, int]],
    ) -> None:
        spot = (row["_topic"], row["_kafka_partition"], row["_offset"])
        if spot in spots:
            self.duplicates += 1
            self.problems.add(
                "duplicate", f"{spot_name(spot)} is twice in table {table} ({file.key})"
            )
            return
        spots[spot] = row
        interval = self._owner.get(file.key)
        if interval is not None:
            start, end = interval.ranges.get(spot[:2], (0, 0))
            if not start <= spot[2] < end:
                self.problems.add(
                    "outside",
                    f"{spot_name(spot)} is in {file.key} of {interval.name}, which has only [{start}, {end})",
                )
        # Readers prune files by these bounds: a query does not find a row outside of them.
        for name, number in whole:
            low, high = (side.get(number) for side in (file.lower, file.upper))
            if row[name] is None or low is None or high is None:
                continue
            first, last = (struct.unpack(_WIDTH[len(bound)], bound)[0] for bound in (low, high))
            if not first <= row[name] <= last:
                self.problems.add(
                    "files",
                    f"{spot_name(spot)}: {name} is outside the bounds [{first}, {last}] of {file.key}",
                )

    # ------------------------------------------------------------ each record

    def check(self, *, full_cover: bool, in_order: bool) -> None:
        """Check that every acknowledged record is present once, as it was sent, and that nothing else is present."""
        if not self.record_level and not self.aggregated:
            self.problems.add("missing", "the lake has no table but dead_letters")
        self._check_sent(full_cover, in_order)
        for spot in sorted({spot for spots in self.rows.values() for spot in spots}):
            self._check_spot(spot)

    @property
    def record_level(self) -> bool:
        return any(name != DEAD for name in self.rows)

    def _covered(self) -> dict[Partition, list[tuple[int, int, CommittedInterval]]]:
        covered: dict[Partition, list[tuple[int, int, CommittedInterval]]] = defaultdict(list)
        for interval in self.intervals:
            for place, (start, end) in interval.ranges.items():
                covered[place].append((start, end, interval))
        return covered

    def _check_sent(self, full_cover: bool, in_order: bool) -> None:
        covered = self._covered()
        absent: dict[tuple[str, Partition], list[Spot]] = defaultdict(list)
        for spot, notes in sorted(self.sent.items()):
            acknowledged = [note for note in notes if note.outcome == "ok"]
            if not acknowledged:
                continue
            interval = next((p for s, e, p in covered[spot[:2]] if s <= spot[2] < e), None)
            if len(acknowledged) > 1 and interval is not None:
                self.problems.add(
                    "sent",
                    f"{spot_name(spot)} was acknowledged {len(acknowledged)} times: the log was truncated and rewritten",
                )
            if interval is not None:
                self._check_time(spot, acknowledged[0], interval, in_order)
            self._check_tables_of(spot)
            if self.is_complete(spot) and (self.record_level or interval is not None):
                self.records += 1
            elif interval is not None:
                lost = interval.readable_from(spot[:2])
                if spot[2] < lost and (interval.plan or {}).get("accept_loss"):
                    continue
                if interval.planned(spot[0]).get("compacted") and not self._in_log(spot):
                    absent[interval.name, spot[:2]].append(spot)
                    continue
                self._miss(spot, f"it is in {interval.name}")
            elif full_cover:
                self._miss(spot, "no committed interval covers it")
        self._check_absent(absent)

    def is_complete(self, spot: Spot) -> bool:
        """Check that a record is in dead_letters or in all other record-level tables (true if there are none)."""
        dead = spot in self.rows.get(DEAD, {})
        return dead or all(spot in spots for name, spots in self.rows.items() if name != DEAD)

    def _check_tables_of(self, spot: Spot) -> None:
        tables = {name: spot in spots for name, spots in self.rows.items() if name != DEAD}
        if spot in self.rows.get(DEAD, {}):
            if any(tables.values()):
                self.duplicates += 1
                self.problems.add(
                    "duplicate", f"{spot_name(spot)} is in dead_letters and in {sorted(tables)}"
                )
        elif any(tables.values()) and not all(tables.values()):
            lacking = sorted(name for name, there in tables.items() if not there)
            self.problems.add(
                "missing", f"{spot_name(spot)} is in some tables and not in {lacking}"
            )

    def _miss(self, spot: Spot, reason: str) -> None:
        self.missing += 1
        self.problems.add(
            "missing", f"{spot_name(spot)} was acknowledged and is in no table; {reason}"
        )

    def _in_log(self, spot: Spot) -> bool:
        log = self.logs.get(spot[:2])
        return log is not None and spot[2] in log.committed

    def _check_absent(self, absent: Mapping[tuple[str, Partition], list[Spot]]) -> None:
        """Allow as many missing records, compacted away before they were read, as the account has as absent."""
        for interval in self.intervals:
            for account in (interval.done or {}).get("accounts", ()):
                gone = absent.get((interval.name, (account["topic"], account["partition"])), [])
                for spot in gone[account["absent"] :]:
                    self._miss(
                        spot,
                        f"{interval.name} accounts for {account['absent']} absent offsets, {len(gone)} are missing",
                    )

    def _check_time(
        self, spot: Spot, sent: Sent, interval: CommittedInterval, in_order: bool
    ) -> None:
        """Check a timestamp: a boundary is the first record at or after its instant, so earlier offsets are older."""
        since_ms, until_ms = (_ms_of(instant) for instant in interval.bounds)
        ahead_ms = _ms_of((interval.plan or {}).get("planned_at", interval.bounds[1])) + _AHEAD_MS
        late = in_order and sent.timestamp_ms < since_ms
        if late or until_ms <= sent.timestamp_ms <= ahead_ms:
            self.problems.add(
                "time", f"{spot_name(spot)} is of {sent.timestamp_ms} ms and is in {interval.name}"
            )

    # ------------------------------------------------------------ each row

    def _check_spot(self, spot: Spot) -> None:
        notes = self.sent.get(spot, [])
        sent = next((note for note in notes if note.outcome in ("ok", "unknown")), None)
        record = self.log_record(spot)
        if sent is None:
            name = digest(record.value) if record is not None else self._dead_digest(spot)
            unplaced = (spot[0], spot[1], name or "")
            if self._unplaced[unplaced] > 0:
                self._unplaced[unplaced] -= 1
                sent = Sent(
                    spot[0],
                    spot[1],
                    spot[2],
                    "unknown",
                    unplaced[2],
                    record.timestamp_ms if record else 0,
                )
        if sent is None:
            outcome = notes[0].outcome if notes else "never sent"
            tables = sorted(name for name, spots in self.rows.items() if spot in spots)
            self.problems.add(
                "foreign", f"{spot_name(spot)} is in {tables}; in the producer's log: {outcome}"
            )
            return
        if sent.outcome == "ok" and record is not None and digest(record.value) != sent.sha256:
            self.problems.add(
                "sent", f"{spot_name(spot)} has another value in the log than was acknowledged"
            )
        for table, spots in self.rows.items():
            if spot in spots:
                self._check_row(table, spot, spots[spot], sent)

    def log_record(self, spot: Spot) -> Any:
        log = self.logs.get(spot[:2])
        return log.committed.get(spot[2]) if log is not None else None

    def _dead_digest(self, spot: Spot) -> str | None:
        row = self.rows.get(DEAD, {}).get(spot)
        return digest(row["value"]) if row is not None else None

    def _check_row(self, table: str, spot: Spot, row: Row, sent: Sent) -> None:
        at_ms = (row["_timestamp"] - _EPOCH) // _MS
        wanted_ms = min(max(sent.timestamp_ms, _FIRST_MS), _LAST_MS)
        if sent.outcome == "ok" and at_ms != wanted_ms:
            self.problems.add(
                "payload", f"{spot_name(spot)} in {table} is of {at_ms} ms, sent was {wanted_ms} ms"
            )
        known, value = self.value_of(spot, sent)
        if table == DEAD:
            self._check_dead_letter(spot, row, sent)
        if self.payload.columns is None or not known:
            return
        expected = self.payload.columns(value)
        if table == DEAD or expected is None:
            if (table == DEAD) != (expected is None):
                what = "a dead letter" if expected is None else "a valid record"
                self.problems.add("payload", f"{spot_name(spot)} is {what} and is in {table}")
            return
        for name, wanted in _compared(expected, row):
            if row[name] != wanted:
                self.problems.add(
                    "payload",
                    f"{spot_name(spot)} in {table}: {name} is {row[name]!r}, sent was {wanted!r}",
                )
        self.payloads += 1

    def _check_dead_letter(self, spot: Spot, row: Row, sent: Sent) -> None:
        self.payloads += 1
        record = self.log_record(spot)
        if digest(row["value"]) != sent.sha256:
            self.problems.add(
                "payload", f"{spot_name(spot)} in {DEAD} has other bytes than were sent"
            )
        if record is not None and row["key"] != record.key:
            self.problems.add(
                "payload",
                f"{spot_name(spot)} in {DEAD} has the key {row['key']!r}, sent was {record.key!r}",
            )
        if record is not None and _headers(row["headers"]) != record.headers:
            self.problems.add(
                "payload", f"{spot_name(spot)} in {DEAD} has other headers than were sent"
            )
        if not row["reason"]:
            self.problems.add("payload", f"{spot_name(spot)} in {DEAD} has no reason")

    def value_of(self, spot: Spot, sent: Sent) -> tuple[bool, bytes | None]:
        record = self.log_record(spot)
        if record is not None and digest(record.value) == sent.sha256:
            return True, record.value
        if sent.sha256 == digest(None):
            return True, None
        value = self.payload.values.get(sent.sha256)
        return value is not None, value


def _headers(text: str | None) -> Headers:
    pairs = json.loads(text or "[]")
    return tuple((name, None if v is None else base64.b64decode(v)) for name, v in pairs)


def _compared(expected: Row, row: Row) -> Iterator[tuple[str, Any]]:
    shared = [name for name in expected if name in row]
    if not shared:
        raise ValueError(
            f"payload columns: expected some of {sorted(row)}, found {sorted(expected)}"
        )
    return ((name, expected[name]) for name in shared)


def _ms_of(instant: str) -> int:
    return (datetime.fromisoformat(instant) - _EPOCH) // _MS


def spot_name(spot: Spot) -> str:
    return f"{spot[0]}[{spot[1]}]@{spot[2]}"
