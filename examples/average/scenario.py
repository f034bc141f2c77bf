"""The example `average`: running averages per sensor, committed together with their state; days run in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime

from examples.average import check
from examples.average.check import StaleStatus
from examples.checks import CheckResult, run_check
from examples.checks.sent import part
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.publisher_kill import KillResult

TOPIC, PARTITIONS = "examples-readings", 2
# The last day runs first: it and the second day cannot read what is not committed yet.
DAYS, KILL_DAY, REPLAYED_DAY = (3, 2, 1), 4, 1
SENSORS = 6
EVERY_MS, LATE_BY_MS = 20 * 60_000, 45 * 60_000
# Every seventh reading arrives late; late readings of the last hour arrive in the next day's interval.
LATE_EVERY = 7
ABORTED = 30
SEED = 2013


class Average:
    """Three days backwards, a refresh; a day replayed by a changed job, a refresh; the fourth day with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.folder = harness.folder / "averages"
        self.days: list[datetime] = []
        self.statuses: list[StaleStatus] = []
        self.calibrated = False

    def fill(self) -> int:
        """Send four days of generated readings; each day, copies in a transaction that is aborted."""
        self.harness.log(f"the readings are generated with the seed {SEED}")
        generated = readings(KILL_DAY)
        batches: list[Batch] = []
        quarter = len(generated) // KILL_DAY
        for start in range(0, len(generated), quarter):
            some = generated[start : start + quarter]
            batches.append(Batch(end="aborted", records=some[:ABORTED]))
            batches.append(Batch(end="committed", records=some))
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run the days backwards, then one refresh; the same after a replay by a changed job."""
        for number in DAYS:
            self._run(number)
        self._expect_stale([day(2), day(3)], "three days ran backwards")
        self._refresh()
        self.harness.change_job("CALIBRATED = False", "CALIBRATED = True")
        self.calibrated = True
        self._run(REPLAYED_DAY, mode="replace")
        self._expect_stale([day(2), day(3)], "the job was changed, and the first day replayed")
        self._refresh()

    def with_kill(self) -> KillResult:
        """Run the fourth day."""
        self.days.append(day(KILL_DAY))
        file = self.folder / f"{part(day(KILL_DAY))}.jsonl"
        result = self.harness.kill_publisher(
            day(KILL_DAY), day(KILL_DAY + 1), count_published=lambda: int(file.exists())
        )
        self._expect_stale([], "the fourth day is published")
        return result

    def check(self) -> CheckResult:
        """Check every version of both tables, and the folder."""
        return run_check(
            lambda: check.compare(
                check.versions(self.harness.open_lake()),
                self.folder,
                self.harness.sent,
                days=self.days,
                calibrated=self.calibrated,
                statuses=self.statuses,
            )
        )

    def _run(self, number: int, **conf: str) -> None:
        self.harness.wait_for_success(self.harness.trigger(day(number), day(number + 1), **conf))
        if day(number) not in self.days:
            self.days.append(day(number))

    def _refresh(self) -> None:
        self.harness.wait_for_success(self.harness.trigger_refresh())
        self._expect_stale([], "one run with mode=refresh")

    def _expect_stale(self, expected: Sequence[datetime], after: str) -> None:
        """Compare the stale days of `tally status` with `expected`, and record them for the check."""
        status = self.harness.status()
        found = [datetime.fromisoformat(stale["from"]) for stale in status["stale"]]
        shown = ", ".join(f"{start:%-d January}" for start in found) or "nothing"
        self.harness.log(f"{after}: stale by tally status: {shown}")
        self.harness.require(
            found == [*expected], f"stale: expected {len(expected)} days, found {shown}"
        )
        self.statuses.append(StaleStatus(version=status["version"], stale=frozenset(found)))


def readings(days: int) -> list[Record]:
    """Return readings of the first days of January 2013 in the order of arrival; always the same.

    The last sensor is installed on the second day. The first sends nothing after that day: its average remains.
    """
    chance = random.Random(SEED)
    arriving: list[tuple[int, Record]] = []
    first_ms, end_ms = (round(day(n).timestamp() * 1000) for n in (1, days + 1))
    second_ms, third_ms = (round(day(n).timestamp() * 1000) for n in (2, 3))
    for number in range(1, SENSORS + 1):
        begin_ms = second_ms if number == SENSORS else first_ms
        until_ms = third_ms if number == 1 else end_ms
        for at_ms in range(begin_ms + number * 1000, until_ms, EVERY_MS):
            value = {
                "sensor": f"s{number}",
                # As text: a decimal never goes through a float.
                "celsius": f"{chance.randrange(-500, 3500) / 100:.2f}",
                "at_ms": at_ms,
            }
            late = len(arriving) % LATE_EVERY == 0 and at_ms + LATE_BY_MS < end_ms
            record = Record(
                partition=number % PARTITIONS,
                at_ms=at_ms,
                value=json.dumps(value),
                key=f"s{number}",
            )
            arriving.append((at_ms + (LATE_BY_MS if late else 0), record))
    return [record for _, record in sorted(arriving, key=lambda a: (a[0], a[1].value))]
