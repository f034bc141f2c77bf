"""The rows: every record that was acknowledged stands in each table or in dead_letters, once, as it was sent."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from oracle.broker_log import Headers, PartitionLog
from oracle.place import Objects
from oracle.problems import Problems
from oracle.produced import Sent, digest
from oracle.reading import DEAD, LINEAGE, LiveFile, Partition, Piece, rows_of

Spot = tuple[str, int, int]
Row = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
# `_timestamp` holds the years 1 to 9999; the nearest of them stands for what lies beyond.
_FIRST_MS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // _MS
# A record from further ahead than this of the planner's clock belongs to the interval in which it arrives.
_AHEAD_MS = 3_600_000
# Single-value serialisation of whole numbers (Iceberg spec, Appendix D).
_WIDTH = {"int": "<i", "long": "<q"}


@dataclass(frozen=True, slots=True)
class Payload:
    """What a record must look like: `columns` of its row by its value (None: a dead letter), `values` by digest."""

    columns: Callable[[bytes | None], Row | None] | None
    values: Mapping[str, bytes]


class Rows:
    """The rows of every table, laid beside what was sent and what the log still holds."""

    def __init__(
        self,
        problems: Problems,
        pieces: list[Piece],
        sent: list[Sent],
        logs: Mapping[Partition, PartitionLog],
        payload: Payload,
    ) -> None:
        self.problems, self.intervals, self.logs, self.payload = problems, pieces, logs, payload
        self.sent: dict[Spot, list[Sent]] = defaultdict(list)
        self._unplaced: Counter[tuple[str, int, str]] = Counter()
        for one in sent:
            if one.offset is not None:
                self.sent[one.topic, one.partition, one.offset].append(one)
            elif one.outcome == "ok":
                problems.say(
                    "sent",
                    f"{one} is acknowledged and has no offset: the producer's log is damaged",
                )
            elif one.outcome == "unknown":
                self._unplaced[one.topic, one.partition, one.sha256] += 1
        self.rows: dict[str, dict[Spot, Row]] = {}
        self.aggregated: dict[str, dict[str, list[Row]]] = {}
        self._owner = {
            key: p for p in pieces for f in (p.report or {}).get("files", ()) for key in [f["key"]]
        }
        self.records = self.duplicates = self.missing = self.payloads = 0

    def read(
        self, table: str, columns: list[dict[str, Any]], files: Iterable[LiveFile], objects: Objects
    ) -> None:
        """Read a table's files whole."""
        names = {c["name"] for c in columns}
        whole = [(c["name"], c["id"], _WIDTH[c["type"]]) for c in columns if c["type"] in _WIDTH]
        spots: dict[Spot, Row] | None = {} if names.issuperset(LINEAGE) else None
        if spots is None:
            self.aggregated[table] = defaultdict(list)
        else:
            self.rows[table] = spots
        for file in files:
            try:
                rows = rows_of(objects, file.key, columns)
            except (FileNotFoundError, ValueError) as error:
                self.problems.say("object", f"table {table}: {file.key} cannot be read: {error}")
                continue
            if rows.num_rows != file.rows:
                self.problems.say(
                    "files", f"{file.key} holds {rows.num_rows} rows, its manifest says {file.rows}"
                )
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
        whole: Iterable[tuple[str, int, str]],
    ) -> None:
        spot = (row["_topic"], row["_kafka_partition"], row["_offset"])
        if spot in spots:
            self.duplicates += 1
            self.problems.say(
                "duplicate", f"{told(spot)} stands twice in table {table} ({file.key})"
            )
            return
        spots[spot] = row
        piece = self._owner.get(file.key)
        if piece is not None:
            start, end = piece.ranges.get(spot[:2], (0, 0))
            if not start <= spot[2] < end:
                self.problems.say(
                    "outside",
                    f"{told(spot)} stands in {file.key} of {piece.name}, which ends at [{start}, {end})",
                )
        # Readers prune files by these: a row outside its file's bounds is a row that a query does not find.
        for name, number, width in whole:
            low, high = (side.get(number) for side in (file.lower, file.upper))
            if row[name] is None or low is None or high is None:
                continue
            first, last = (struct.unpack(width, bound)[0] for bound in (low, high))
            if not first <= row[name] <= last:
                self.problems.say(
                    "files",
                    f"{told(spot)}: {name} lies outside the bounds [{first}, {last}] of {file.key}",
                )

    # ------------------------------------------------------------ each record

    def judge(self, *, full_cover: bool, in_order: bool) -> None:
        """Every acknowledged record is there, once; nothing is there that was not acknowledged; all as it was sent."""
        if not self.record_level and not self.aggregated:
            self.problems.say("missing", "the lake has no table but dead_letters")
        self._judge_sent(full_cover, in_order)
        for spot in sorted({spot for spots in self.rows.values() for spot in spots}):
            self._judge_spot(spot)

    @property
    def record_level(self) -> bool:
        return any(name != DEAD for name in self.rows)

    def _covered(self) -> dict[Partition, list[tuple[int, int, Piece]]]:
        found: dict[Partition, list[tuple[int, int, Piece]]] = defaultdict(list)
        for piece in self.intervals:
            for place, (start, end) in piece.ranges.items():
                found[place].append((start, end, piece))
        return found

    def _judge_sent(self, full_cover: bool, in_order: bool) -> None:
        covered = self._covered()
        absent: dict[tuple[str, Partition], list[Spot]] = defaultdict(list)
        for spot, notes in sorted(self.sent.items()):
            acknowledged = [one for one in notes if one.outcome == "ok"]
            if not acknowledged:
                continue
            piece = next((p for s, e, p in covered[spot[:2]] if s <= spot[2] < e), None)
            if len(acknowledged) > 1 and piece is not None:
                self.problems.say(
                    "sent",
                    f"{told(spot)} was acknowledged {len(acknowledged)} times: the log was cut and written anew",
                )
            if piece is not None:
                self._judge_time(spot, acknowledged[0], piece, in_order)
            self._judge_tables(spot)
            if self.stands(spot) and (self.record_level or piece is not None):
                self.records += 1
            elif piece is not None:
                lost = piece.readable_from(spot[:2])
                if spot[2] < lost and (piece.plan or {}).get("accept_loss"):
                    continue
                if piece.planned(spot[0]).get("compacted") and not self._in_log(spot):
                    absent[piece.name, spot[:2]].append(spot)
                    continue
                self._miss(spot, f"it lies in {piece.name}")
            elif full_cover:
                self._miss(spot, "no committed interval covers it")
        self._judge_absent(absent)

    def stands(self, spot: Spot) -> bool:
        """In dead_letters, or in every other record-level table (where there is none, only aggregates can tell)."""
        dead = spot in self.rows.get(DEAD, {})
        return dead or all(spot in spots for name, spots in self.rows.items() if name != DEAD)

    def _judge_tables(self, spot: Spot) -> None:
        tables = {name: spot in spots for name, spots in self.rows.items() if name != DEAD}
        if spot in self.rows.get(DEAD, {}):
            if any(tables.values()):
                self.duplicates += 1
                self.problems.say(
                    "duplicate", f"{told(spot)} stands in dead_letters and in {sorted(tables)}"
                )
        elif any(tables.values()) and not all(tables.values()):
            lacking = sorted(name for name, there in tables.items() if not there)
            self.problems.say("missing", f"{told(spot)} stands in some tables and not in {lacking}")

    def _miss(self, spot: Spot, where: str) -> None:
        self.missing += 1
        self.problems.say("missing", f"{told(spot)} was acknowledged and is in no table; {where}")

    def _in_log(self, spot: Spot) -> bool:
        log = self.logs.get(spot[:2])
        return log is not None and spot[2] in log.committed

    def _judge_absent(self, absent: Mapping[tuple[str, Partition], list[Spot]]) -> None:
        """What was compacted away before it was read may be missing: as much as the account says, and no more."""
        for piece in self.intervals:
            for account in (piece.done or {}).get("accounts", ()):
                gone = absent.get((piece.name, (account["topic"], account["partition"])), [])
                for spot in gone[account["absent"] :]:
                    self._miss(
                        spot,
                        f"{piece.name} accounts for {account['absent']} absent ones, {len(gone)} are gone",
                    )

    def _judge_time(self, spot: Spot, sent: Sent, piece: Piece, in_order: bool) -> None:
        """A boundary is the first record at or after its instant: what lies before it is from before it."""
        since_ms, until_ms = (_ms_of(instant) for instant in piece.interval)
        ahead_ms = _ms_of((piece.plan or {}).get("planned_at", piece.interval[1])) + _AHEAD_MS
        late = in_order and sent.timestamp_ms < since_ms
        if late or until_ms <= sent.timestamp_ms <= ahead_ms:
            self.problems.say(
                "time", f"{told(spot)} is of {sent.timestamp_ms} ms and lies in {piece.name}"
            )

    # ------------------------------------------------------------ each row

    def _judge_spot(self, spot: Spot) -> None:
        notes = self.sent.get(spot, [])
        sent = next((one for one in notes if one.outcome in ("ok", "unknown")), None)
        held = self.held(spot)
        if sent is None:
            name = digest(held.value) if held is not None else self._dead_digest(spot)
            unplaced = (spot[0], spot[1], name or "")
            if self._unplaced[unplaced] > 0:
                self._unplaced[unplaced] -= 1
                sent = Sent(
                    spot[0],
                    spot[1],
                    spot[2],
                    "unknown",
                    unplaced[2],
                    held.timestamp_ms if held else 0,
                )
        if sent is None:
            said = notes[0].outcome if notes else "never sent"
            tables = sorted(name for name, spots in self.rows.items() if spot in spots)
            self.problems.say(
                "foreign", f"{told(spot)} stands in {tables}; its producer says: {said}"
            )
            return
        if sent.outcome == "ok" and held is not None and digest(held.value) != sent.sha256:
            self.problems.say(
                "sent", f"{told(spot)} holds another value in the log than was acknowledged"
            )
        for table, spots in self.rows.items():
            if spot in spots:
                self._judge_row(table, spot, spots[spot], sent)

    def held(self, spot: Spot) -> Any:
        log = self.logs.get(spot[:2])
        return log.committed.get(spot[2]) if log is not None else None

    def _dead_digest(self, spot: Spot) -> str | None:
        row = self.rows.get(DEAD, {}).get(spot)
        return digest(row["value"]) if row is not None else None

    def _judge_row(self, table: str, spot: Spot, row: Row, sent: Sent) -> None:
        at_ms = (row["_timestamp"] - _EPOCH) // _MS
        wanted_ms = min(max(sent.timestamp_ms, _FIRST_MS), _LAST_MS)
        if sent.outcome == "ok" and at_ms != wanted_ms:
            self.problems.say(
                "payload", f"{told(spot)} in {table} is of {at_ms} ms, sent was {wanted_ms} ms"
            )
        known, value = self.value_of(spot, sent)
        if table == DEAD:
            self._judge_dead(spot, row, sent)
        if self.payload.columns is None or not known:
            return
        expected = self.payload.columns(value)
        if table == DEAD or expected is None:
            if (table == DEAD) != (expected is None):
                what = "a dead letter" if expected is None else "a sound record"
                self.problems.say("payload", f"{told(spot)} is {what} and stands in {table}")
            return
        for name, wanted in _compared(expected, row):
            if row[name] != wanted:
                self.problems.say(
                    "payload",
                    f"{told(spot)} in {table}: {name} is {row[name]!r}, sent was {wanted!r}",
                )
        self.payloads += 1

    def _judge_dead(self, spot: Spot, row: Row, sent: Sent) -> None:
        self.payloads += 1
        held = self.held(spot)
        if digest(row["value"]) != sent.sha256:
            self.problems.say("payload", f"{told(spot)} in {DEAD} has other bytes than were sent")
        if held is not None and row["key"] != held.key:
            self.problems.say(
                "payload",
                f"{told(spot)} in {DEAD} has the key {row['key']!r}, sent was {held.key!r}",
            )
        if held is not None and _headers(row["headers"]) != held.headers:
            self.problems.say("payload", f"{told(spot)} in {DEAD} has other headers than were sent")
        if not row["reason"]:
            self.problems.say("payload", f"{told(spot)} in {DEAD} has no reason")

    def value_of(self, spot: Spot, sent: Sent) -> tuple[bool, bytes | None]:
        held = self.held(spot)
        if held is not None and digest(held.value) == sent.sha256:
            return True, held.value
        if sent.sha256 == digest(None):
            return True, None
        found = self.payload.values.get(sent.sha256)
        return found is not None, found


def _headers(told: str | None) -> Headers:
    pairs = json.loads(told or "[]")
    return tuple((name, None if v is None else base64.b64decode(v)) for name, v in pairs)


def _compared(expected: Row, row: Row) -> Iterator[tuple[str, Any]]:
    shared = [name for name in expected if name in row]
    if not shared:
        raise ValueError(
            f"the payload names {sorted(expected)}, the table has {sorted(row)}: nothing to compare"
        )
    return ((name, expected[name]) for name in shared)


def _ms_of(instant: str) -> int:
    return (datetime.fromisoformat(instant) - _EPOCH) // _MS


def told(spot: Spot) -> str:
    return f"{spot[0]}[{spot[1]}]@{spot[2]}"
