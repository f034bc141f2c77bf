"""The example `billing`: an hour is invoiced once per customer; late usage and new prices are separate lines."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from examples.billing import check
from examples.billing.check import Tables
from examples.billing.receiver import Receiver
from examples.checks import CheckResult, run_check
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.publisher_kill import KillResult

TOPIC, PARTITIONS = "examples-billing", 3
# The usage is generated, the same in each run.
SEED = 1
CUSTOMERS, EVENTS, HOURS = 12, 1_500, 9
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
SPAN_HOURS, SCHEDULED = 3, 2
ABORTED = 40
TARIFF = {"compute": 5, "traffic": 1, "archive": 2}
NEW_TARIFF = {**TARIFF, "archive": 3}
# Rarely used, so that a new price changes only some of the invoices.
ARCHIVE_EVERY = 25


class Billing:
    """Two intervals by the schedule, one replayed unchanged, both repriced, the third with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.receiver = Receiver()
        self.boundaries: list[datetime] = []
        self.replays: list[tuple[str, int]] = []

    def fill(self) -> int:
        """Send nine hours of usage; before every three hours, copies in a transaction that is aborted."""
        self.harness.set_task_environment(
            TALLYSTICK_HTTP_LEDGER=json.dumps({"base_url": self.receiver.url})
        )
        batches: list[Batch] = []
        for records in usage():
            batches.append(Batch(end="aborted", records=records[:ABORTED]))
            batches.append(Batch(end="committed", records=records))
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run the intervals of the schedule; replace one, unchanged; then replace both by a new tariff."""
        self.harness.catch_up(SCHEDULED)
        self.boundaries = [boundary(number) for number in range(SCHEDULED + 1)]
        before = len(self.receiver.postings)
        self.harness.log(f"{before} lines of invoices and corrections")
        self.harness.wait_for_success(
            self.harness.trigger(boundary(1), boundary(2), mode="replace")
        )
        self.replays.append(("a replay by the same job", len(self.receiver.postings) - before))
        self.harness.change_job(
            f'"archive": {TARIFF["archive"]}', f'"archive": {NEW_TARIFF["archive"]}'
        )
        self.harness.wait_for_success(
            self.harness.trigger(boundary(0), boundary(SCHEDULED), mode="replace")
        )
        self.harness.log(f"a new tariff: {len(self.receiver.postings) - before} lines more")

    def with_kill(self) -> KillResult:
        """Run the third interval."""
        before, calls = len(self.receiver.postings), self.receiver.calls
        result = self.harness.kill_publisher(
            boundary(SCHEDULED),
            boundary(SCHEDULED + 1),
            count_published=lambda: len(self.receiver.postings) - before,
        )
        self.boundaries.append(boundary(SCHEDULED + 1))
        lines = len(self.receiver.postings) - before
        repeated = self.receiver.calls - calls - lines
        self.harness.log(
            f"{lines} lines; {repeated} calls were repeated, with keys that the receiver already had"
        )
        return result

    def check(self) -> CheckResult:
        """Check the receiver's ledger, and the lake's tables."""
        return run_check(
            lambda: check.compare(
                self.receiver.postings,
                self._tables(),
                self.harness.sent,
                boundaries=self.boundaries,
                tariff=NEW_TARIFF,
                old_tariff=TARIFF,
                repriced=SCHEDULED,
                replays=self.replays,
            )
        )

    def _tables(self) -> Tables:
        lake = self.harness.open_lake()
        return Tables(
            invoices=lake.rows("invoices"),
            corrections=lake.rows("corrections"),
            outside=lake.rows("outside"),
        )


def boundary(number: int) -> datetime:
    """Return the start of an interval of three hours."""
    return day(1) + timedelta(hours=SPAN_HOURS * number)


def usage() -> list[list[Record]]:
    """Return the usage that arrives in each interval: most of it immediately, some after its hour was closed."""
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
        # No usage is of a time before the first interval: its hours are not closed in this example.
        used_ms = max(arrival_ms - delay_ms, 0)
        customer = f"customer-{chance.randrange(CUSTOMERS):02}"
        service = (
            "archive" if number % ARCHIVE_EVERY == 0 else chance.choice(["compute", "traffic"])
        )
        yield arrival_ms, used_ms, chance.randrange(PARTITIONS), customer, service


def _delay_ms(chance: random.Random) -> int:
    """Return a random delay; a few meters have a clock that is a day ahead."""
    drawn = chance.random()
    if drawn < 0.85:
        return chance.randrange(12 * MINUTE_MS)
    if drawn < 0.99:
        return chance.randrange(10 * MINUTE_MS, 4 * HOUR_MS)
    return -24 * HOUR_MS


def _ms(since_ms: int) -> int:
    return round(day(1).timestamp() * 1000) + since_ms
