"""The example `debezium`: a table in PostgreSQL, its change events by Debezium, and a row for each of them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from examples.checks import CheckResult, run_check
from examples.checks.lake import Lake
from examples.checks.values import plain
from examples.debezium import check
from examples.debezium.servers import ROLE, Connect, SourceDatabase
from examples.runner.harness import Harness
from examples.runner.produce import TIMEOUT_S, create_topic
from examples.runner.writer_kill import BEFORE_REPORT, WriterKill

TOPIC, TABLE = "shop.public.orders", "order_changes"
SEED, SNAPSHOT, CHANGES = 2013, 40, 120
_CREATE = (
    "create table orders (id bigint primary key, customer text not null, amount numeric(12,2) not null, "
    "placed timestamptz not null, shipped date)",
    # The events of updates and deletions have the whole row before the change.
    "alter table orders replica identity full",
    "create publication shop for table orders",
    f"grant select on orders to {ROLE}",
)


class DebeziumChanges:
    """A snapshot, changes and a TRUNCATE; then a column more, and changes whose stage is killed."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.database = SourceDatabase(harness.folder / "postgres")
        self.connect = Connect(
            harness.folder / "connect", self.database, harness.kafka, tables="public.orders"
        )
        self.chance = random.Random(SEED)
        self.rows: dict[int, dict[str, Any]] = {}
        self.columns = ["customer", "amount", "placed", "shipped"]
        self.next_id = 1
        self.events = 0
        self.begin = _next_second()
        self.table: list[dict[str, Any]] = []

    def fill(self) -> int:
        """Start the database and Kafka Connect, and change the table before and after Debezium's snapshot of it."""
        self.database.start(*_CREATE)
        for _ in range(SNAPSHOT):
            self._insert("r")
        create_topic(self.harness.kafka, TOPIC, partitions=1)
        began = time.monotonic()
        self.connect.start()
        self._wait_for_events()
        elapsed_s = time.monotonic() - began
        self.harness.log(
            f"Kafka Connect is up, and the snapshot is in the topic, after {elapsed_s:.1f} s"
        )
        self._change(CHANGES // 2)
        self.database.execute("truncate orders")
        self.rows.clear()
        self._record("t", None, None, None)
        self._change(CHANGES // 2)
        return self.events

    def without_kill(self) -> None:
        """Run the interval of the snapshot, the first changes and the TRUNCATE."""
        start, end = self._interval()
        self.harness.wait_for_success(self.harness.trigger(start, end))

    def with_kill(self) -> WriterKill:
        """Add a column to the database's table, change rows, and run the interval; its stage is killed."""
        try:
            self.database.execute("alter table orders add column note text")
            self.columns.append("note")
            for row in self.rows.values():
                row["note"] = None
            self._change(CHANGES)
            start, end = self._interval()
        finally:
            self.connect.stop()
            self.database.stop()
        return self.harness.kill_writer(start, end, BEFORE_REPORT)

    def check(self) -> CheckResult:
        """Check the rows of the lake against the operations, and against the database's table."""
        lake = self.harness.open_lake()
        return run_check(
            lambda: check.compare(
                lambda: lake.rows(TABLE),
                lambda: self._dead_letters(lake),
                self.harness.sent,
                table=self.table,
            )
        )

    @staticmethod
    def _dead_letters(lake: Lake) -> list[dict[str, Any]]:
        table = lake.json("root.json")["tables"].get("dead_letters")
        written = table is not None and table["metadata"] is not None
        return lake.rows_of(table["metadata"]) if written else []

    # ------------------------------------------------------------ operations, each recorded

    def _change(self, count: int) -> None:
        """Execute operations at random: inserts, updates, deletions."""
        for _ in range(count):
            kind = (
                self.chance.choice(["insert", "update", "update", "delete"])
                if self.rows
                else "insert"
            )
            if kind == "insert":
                self._insert("c")
            elif kind == "update":
                self._update(self.chance.choice(sorted(self.rows)))
            else:
                self._delete(self.chance.choice(sorted(self.rows)))

    def _insert(self, op: str) -> None:
        number, self.next_id = self.next_id, self.next_id + 1
        row = self._row()
        names = ["id", *row]
        places = ", ".join(["%s"] * len(names))
        self.database.execute(
            f"insert into orders ({', '.join(names)}) values ({places})", number, *row.values()
        )
        self._record(op, number, None, row)
        self.rows[number] = row

    def _update(self, number: int) -> None:
        row = self._row()
        changed = ", ".join(f"{name} = %s" for name in row)
        self.database.execute(f"update orders set {changed} where id = %s", *row.values(), number)
        self._record("u", number, self.rows[number], row)
        self.rows[number] = row

    def _delete(self, number: int) -> None:
        self.database.execute("delete from orders where id = %s", number)
        self._record("d", number, self.rows.pop(number), None)

    def _row(self) -> dict[str, Any]:
        chance = self.chance
        made = {
            "customer": chance.choice(["Anne", "Zoë", "", 'O\'Neill \\ "x"']),
            "amount": Decimal(chance.randrange(-(10**11), 10**11)).scaleb(-2),
            "placed": datetime(1970, 1, 1, tzinfo=UTC)
            + timedelta(microseconds=chance.randrange(-(10**15), 2 * 10**15)),
            "shipped": chance.choice(
                [None, date(1969, 7, 20) + timedelta(days=chance.randrange(30_000))]
            ),
            "note": chance.choice([None, "late"]),
        }
        return {name: made[name] for name in self.columns}

    def _record(
        self,
        op: str,
        number: int | None,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
    ) -> None:
        line = {
            "op": op,
            "id": number,
            "before": before and plain(dict(before)),
            "after": after and plain(dict(after)),
        }
        with self.harness.sent.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line, ensure_ascii=False) + "\n")
        # A deletion has an event and a tombstone.
        self.events += 2 if op == "d" else 1

    # ------------------------------------------------------------ intervals

    def _interval(self) -> tuple[datetime, datetime]:
        """Wait for all events; return the interval since the last one, and keep the table as it is at its end."""
        self._wait_for_events()
        names = ["id", *self.columns]
        rows = self.database.execute(f"select {', '.join(names)} from orders")
        self.table = [
            dict.fromkeys(check.COLUMNS) | dict(zip(names, row, strict=True)) for row in rows
        ]
        begin, self.begin = self.begin, _next_second()
        self.harness.poll(lambda: datetime.now(UTC) >= self.begin or None, "end of the interval")
        return begin, self.begin

    def _wait_for_events(self) -> None:
        """Wait until the topic has the events of all operations so far."""
        consumer = Consumer({**self.harness.kafka, "group.id": "unused", "log_level": 0})
        place = TopicPartition(TOPIC, 0)
        try:

            def arrived() -> bool | None:
                ends = consumer.get_watermark_offsets(place, TIMEOUT_S)
                return True if ends is not None and ends[1] >= self.events else None

            self.harness.poll(arrived, f"{self.events} events in {TOPIC}")
        finally:
            consumer.close()


def _next_second() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
