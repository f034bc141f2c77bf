"""The example `upsert`: payments into PostgreSQL by their id, one day replaced so that older rows show again."""

from __future__ import annotations

import json
import random
import zlib
from datetime import UTC, datetime
from typing import Any

import psycopg2

from examples.checks import Ruling, ruling
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.scene import Scene, day
from examples.runner.strike import Blow
from examples.upsert import check
from tallystick_devstack.postgres import ADMIN

TOPIC, PARTITIONS, DATABASE = "examples-upsert", 3, "examples_upsert"
DAYS, STRUCK_DAY, REPLACED_DAY = (1, 2, 3), 4, 2
SEED, PAYMENTS, ABORTED = 2013, 400, 40
TABLE = """
create table public.payments (
    txn_id text primary key, account text not null, cents bigint not null, status text not null,
    happened timestamptz not null
)
"""


class Upsert:
    """Three days by the schedule, one replayed unchanged, one by a changed job, the fourth under a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.server: dict[str, Any] = {"host": scene.info.parts["postgres"].address, "user": ADMIN}
        self.keep_cancelled: dict[datetime, bool] = {}

    def fill(self) -> int:
        """An empty table; four days of payments by a seeded generator, and a transaction of copies that is aborted."""
        self._make_table()
        connection = json.dumps({**self.server, "dbname": DATABASE})
        self.scene.tell_tasks(TALLYSTICK_POSTGRES_EXAMPLES=connection)
        records = _payments()
        create_topic(self.scene.kafka, TOPIC, partitions=PARTITIONS)
        half = len(records) // 2
        batches = [
            Batch(end="committed", records=records[:half]),
            Batch(end="aborted", records=records[half : half + ABORTED]),
            Batch(end="committed", records=records[half:]),
        ]
        return produce(self.scene.kafka, TOPIC, batches, sent=self.scene.sent)

    def plain(self) -> None:
        """The schedule's days; mode=replace of the third, unchanged; the second again by a changed job."""
        runs = self.scene.catch_up(len(DAYS))
        self.keep_cancelled = {day(number): True for number in DAYS}
        before = self._versions()
        self.scene.green(self.scene.start(day(3), day(4), mode="replace"))
        self.scene.must(
            self._versions() == before, "a replay of what had not changed wrote rows anew"
        )
        self.scene.say(
            "replayed 3 January: no row was touched; now the job is changed, and 2 January"
        )
        self.scene.change_job("KEEP_CANCELLED = True", "KEEP_CANCELLED = False")
        self.scene.clear(runs[DAYS.index(REPLACED_DAY)])
        self.keep_cancelled[day(REPLACED_DAY)] = False

    def struck(self) -> Blow:
        """The fourth day."""
        begin = day(STRUCK_DAY).timestamp()

        def out() -> int:
            return sum(row[-1].timestamp() >= begin for row in self._rows())

        blow = self.scene.strike(day(STRUCK_DAY), day(STRUCK_DAY + 1), out=out)
        self.keep_cancelled[day(STRUCK_DAY)] = False
        return blow

    def judge(self) -> Ruling:
        """The table alone."""
        return ruling(
            lambda: check.judge(
                self._rows(),
                self.scene.sent,
                keep_cancelled=self.keep_cancelled,
                replaced=day(REPLACED_DAY),
            )
        )

    # ------------------------------------------------------------ the database, as any client sees it

    def _make_table(self) -> None:
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

    def _asked(self, question: str) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(**self.server, dbname=DATABASE)
        try:
            with connection.cursor() as cursor:
                cursor.execute(question)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def _rows(self) -> list[tuple[Any, ...]]:
        return self._asked("select txn_id, account, cents, status, happened from public.payments")

    def _versions(self) -> set[tuple[Any, ...]]:
        """Each row with the transaction that wrote it: a row that is written anew has another."""
        return set(self._asked("select txn_id, xmin::text from public.payments"))


def _payments() -> list[Record]:
    """Payments of four days in the order of their time: authorised, and on the same day or a later one settled or not."""
    chance = random.Random(SEED)
    first = round(day(1).timestamp())
    records: list[Record] = []
    for number in range(PAYMENTS):
        payment = f"txn-{number:05}"
        at = first + chance.randrange(STRUCK_DAY * 86_400 - 7_200)
        account, cents = f"acc-{chance.randrange(40):02}", chance.randrange(100, 50_000)
        records.append(_record(payment, account, cents, "authorised", at))
        end = at + chance.randrange(60, 36 * 3_600)
        if end < first + STRUCK_DAY * 86_400:
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
