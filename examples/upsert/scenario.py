"""The example `upsert`: payments into PostgreSQL by their id; one day is replaced, so older rows become visible."""

from __future__ import annotations

import json
import random
import zlib
from datetime import UTC, datetime
from typing import Any

import psycopg2

from examples.checks import CheckResult, run_check
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.publisher_kill import KillResult
from examples.upsert import check
from tallystick_devstack.postgres import ADMIN

TOPIC, PARTITIONS, DATABASE = "examples-upsert", 3, "examples_upsert"
DAYS, KILL_DAY, REPLACED_DAY = (1, 2, 3), 4, 2
SEED, PAYMENTS, ABORTED = 2013, 400, 40
TABLE = """
create table public.payments (
    txn_id text primary key, account text not null, cents bigint not null, status text not null,
    happened timestamptz not null
)
"""


class Upsert:
    """Three days by the schedule, one replayed unchanged, one by a changed job, the fourth with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.server: dict[str, Any] = {
            "host": harness.info.parts["postgres"].address,
            "user": ADMIN,
        }
        self.keep_cancelled: dict[datetime, bool] = {}

    def fill(self) -> int:
        """Create an empty table; send four days of generated payments, and copies in a transaction that is aborted."""
        self._create_table()
        connection = json.dumps({**self.server, "dbname": DATABASE})
        self.harness.set_task_environment(TALLYSTICK_POSTGRES_EXAMPLES=connection)
        records = _payments()
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        half = len(records) // 2
        batches = [
            Batch(end="committed", records=records[:half]),
            Batch(end="aborted", records=records[half : half + ABORTED]),
            Batch(end="committed", records=records[half:]),
        ]
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run the days of the schedule; replace the third, unchanged; run the second again by a changed job."""
        runs = self.harness.catch_up(len(DAYS))
        self.keep_cancelled = {day(number): True for number in DAYS}
        before = self._versions()
        self.harness.wait_for_success(self.harness.trigger(day(3), day(4), mode="replace"))
        self.harness.require(self._versions() == before, "a replay without a change rewrote rows")
        self.harness.log(
            "replayed 3 January: no row was rewritten; next, 2 January with a changed job"
        )
        self.harness.change_job("KEEP_CANCELLED = True", "KEEP_CANCELLED = False")
        self.harness.clear(runs[DAYS.index(REPLACED_DAY)])
        self.keep_cancelled[day(REPLACED_DAY)] = False

    def with_kill(self) -> KillResult:
        """Run the fourth day."""
        begin = day(KILL_DAY).timestamp()

        def published() -> int:
            return sum(row[-1].timestamp() >= begin for row in self._rows())

        result = self.harness.kill_publisher(
            day(KILL_DAY), day(KILL_DAY + 1), count_published=published
        )
        self.keep_cancelled[day(KILL_DAY)] = False
        return result

    def check(self) -> CheckResult:
        """Check the table alone."""
        return run_check(
            lambda: check.compare(
                self._rows(),
                self.harness.sent,
                keep_cancelled=self.keep_cancelled,
                replaced=day(REPLACED_DAY),
            )
        )

    # ------------------------------------------------------------ the database, by a plain client

    def _create_table(self) -> None:
        for database, statement in (
            ("postgres", f"create database {DATABASE}"),
            (DATABASE, TABLE),
        ):
            connection = psycopg2.connect(**self.server, dbname=database)
            try:
                connection.autocommit = True
                with connection.cursor() as cursor:
                    cursor.execute(statement)
            finally:
                connection.close()

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(**self.server, dbname=DATABASE)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def _rows(self) -> list[tuple[Any, ...]]:
        return self._query("select txn_id, account, cents, status, happened from public.payments")

    def _versions(self) -> set[tuple[Any, ...]]:
        """Return each id with the transaction that wrote its row: a row that is rewritten has another transaction."""
        return set(self._query("select txn_id, xmin::text from public.payments"))


def _payments() -> list[Record]:
    """Return payments of four days in the order of their time: authorised, and later settled or cancelled or neither."""
    chance = random.Random(SEED)
    first = round(day(1).timestamp())
    records: list[Record] = []
    for number in range(PAYMENTS):
        payment = f"txn-{number:05}"
        at = first + chance.randrange(KILL_DAY * 86_400 - 7_200)
        account, cents = f"acc-{chance.randrange(40):02}", chance.randrange(100, 50_000)
        records.append(_record(payment, account, cents, "authorised", at))
        end = at + chance.randrange(60, 36 * 3_600)
        if end < first + KILL_DAY * 86_400:
            status = chance.choice(["settled", "settled", "settled", "cancelled"])
            records.append(_record(payment, account, cents, status, end))
    return sorted(records, key=lambda record: record.at_ms)


def _record(payment: str, account: str, cents: int, status: str, at: int) -> Record:
    value = {
        "txn_id": payment,
        "account": account,
        "cents": cents,
        "status": status,
        "happened": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"),
    }
    partition = zlib.crc32(payment.encode()) % PARTITIONS
    return Record(partition=partition, at_ms=at * 1_000, value=json.dumps(value), key=payment)
