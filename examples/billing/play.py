"""The example `billing`: an hour is invoiced once per customer; what is late or priced anew is a line of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from examples.billing import check
from examples.billing.receiver import Receiver
from examples.checks import Ruling, ruling
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.scene import Scene, day
from examples.runner.strike import Blow

TOPIC, PARTITIONS = "examples-billing", 3
# The usage is made up: by chance, the same at each play.
SEED = 1
CUSTOMERS, EVENTS, HOURS = 12, 1_500, 9
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
SPAN_HOURS, SCHEDULED = 3, 2
ABORTED = 40
TARIFF = {"compute": 5, "traffic": 1, "archive": 2}
NEW_TARIFF = {**TARIFF, "archive": 3}
# Few use it, so that a new price of it leaves most invoices as they are.
ARCHIVE_EVERY = 25


class Billing:
    """Two intervals by the schedule, one replayed unchanged, both priced anew, the third under a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.receiver = Receiver()
        self.edges: list[datetime] = []
        self.silent: list[tuple[str, int]] = []

    def fill(self) -> int:
        """Nine hours of usage; before each third one a transaction of copies that is aborted."""
        self.scene.tell_tasks(TALLYSTICK_HTTP_LEDGER=json.dumps({"base_url": self.receiver.url}))
        batches: list[Batch] = []
        for records in usage():
            batches.append(Batch(end="aborted", records=records[:ABORTED]))
            batches.append(Batch(end="committed", records=records))
        create_topic(self.scene.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.scene.kafka, TOPIC, batches, sent=self.scene.sent)

    def plain(self) -> None:
        """The schedule's intervals; one of them again, unchanged; then both by a new tariff."""
        self.scene.catch_up(SCHEDULED)
        self.edges = [edge(number) for number in range(SCHEDULED + 1)]
        before = len(self.receiver.postings)
        self.scene.say(f"{before} lines of invoices and corrections")
        self.scene.green(self.scene.start(edge(1), edge(2), mode="replace"))
        self.silent.append(("a replay by the same job", len(self.receiver.postings) - before))
        self.scene.change_job(
            f'"archive": {TARIFF["archive"]}', f'"archive": {NEW_TARIFF["archive"]}'
        )
        self.scene.green(self.scene.start(edge(0), edge(SCHEDULED), mode="replace"))
        self.scene.say(f"a new tariff: {len(self.receiver.postings) - before} lines more")

    def struck(self) -> Blow:
        """The third interval."""
        before, calls = len(self.receiver.postings), self.receiver.calls
        blow = self.scene.strike(
            edge(SCHEDULED),
            edge(SCHEDULED + 1),
            out=lambda: len(self.receiver.postings) - before,
        )
        self.edges.append(edge(SCHEDULED + 1))
        lines = len(self.receiver.postings) - before
        again = self.receiver.calls - calls - lines
        self.scene.say(
            f"{lines} lines; {again} calls came twice, under keys that the receiver knew"
        )
        return blow

    def judge(self) -> Ruling:
        """The receiver's ledger, and the lake's tables."""
        return ruling(
            lambda: check.judge(
                self.receiver.postings,
                self._tables(),
                self.scene.sent,
                edges=self.edges,
                tariff=NEW_TARIFF,
                before=TARIFF,
                priced_anew=SCHEDULED,
                silent=self.silent,
            )
        )

    def _tables(self) -> check.Tables:
        lake = self.scene.open_lake()
        return check.Tables(
            invoices=lake.rows("invoices"),
            corrections=lake.rows("corrections"),
            outside=lake.rows("outside"),
        )


def edge(number: int) -> datetime:
    """Where an interval of three hours begins."""
    return day(1) + timedelta(hours=SPAN_HOURS * number)


def usage() -> list[list[Record]]:
    """The usage that arrives in each interval: most of it at once, some after its hour was closed."""
    chance = random.Random(SEED)
    intervals: list[list[Record]] = [[] for _ in range(HOURS // SPAN_HOURS)]
    for arrival_ms, used_ms, partition, customer, service in sorted(_events(chance)):
        used_at = datetime.fromtimestamp(_ms(used_ms) / 1000, UTC)
        value = {
            "customer": customer,
            "service": service,
            "units": chance.randint(1, 50),
            "used_at": used_at.isoformat(timespec="milliseconds"),
        }
        record = Record(
            partition=partition, at_ms=_ms(arrival_ms), value=json.dumps(value), key=customer
        )
        intervals[arrival_ms // (SPAN_HOURS * HOUR_MS)].append(record)
    return intervals


def _events(chance: random.Random) -> Iterator[tuple[int, int, int, str, str]]:
    for number in range(EVENTS):
        arrival_ms = chance.randrange(HOURS * HOUR_MS)
        delay_ms = _delay_ms(chance)
        # Of before the first interval nothing is known: no hour of it was ever closed here.
        used_ms = max(arrival_ms - delay_ms, 0)
        customer = f"customer-{chance.randrange(CUSTOMERS):02}"
        service = (
            "archive" if number % ARCHIVE_EVERY == 0 else chance.choice(["compute", "traffic"])
        )
        yield arrival_ms, used_ms, chance.randrange(PARTITIONS), customer, service


def _delay_ms(chance: random.Random) -> int:
    """In time, or not; a few meters have a clock that is a day ahead."""
    drawn = chance.random()
    if drawn < 0.85:
        return chance.randrange(12 * MINUTE_MS)
    if drawn < 0.99:
        return chance.randrange(10 * MINUTE_MS, 4 * HOUR_MS)
    return -24 * HOUR_MS


def _ms(since_ms: int) -> int:
    return round(day(1).timestamp() * 1000) + since_ms
