"""The example `counts`: flights per hour and airport, from topic to topic, each count once for read_committed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from examples.checks import CheckResult, run_check
from examples.counts import check
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, Record, committed_offsets, create_topic, flights, produce
from examples.runner.publisher_kill import KillResult

SOURCE, TARGET = "examples-counts", "examples-flights-per-hour"
PARTITIONS = 3
DAYS, KILL_DAY, REPLAYED_DAY, CORRECTED_DAY = (1, 2, 3), 4, 1, 2
# Every hundredth flight is sent three hours late, some of them after midnight: their windows get counts from two days.
LATE_EVERY, LATE_BY_MS = 100, 3 * 3_600_000
ABORTED = 40


class Counts:
    """Three days by the schedule, one replayed unchanged, one by a changed job, the fourth with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.cancelled_count: dict[datetime, bool] = {}

    def fill(self) -> int:
        """Send four days of real flights by transactional producers; each day one transaction, of copies, is aborted."""
        records = _some_late(flights(1, KILL_DAY, partitions=PARTITIONS))
        batches: list[Batch] = []
        quarter = len(records) // KILL_DAY
        for start in range(0, len(records), quarter):
            some = records[start : start + quarter]
            batches.append(Batch(end="committed", records=some[: quarter // 2]))
            batches.append(Batch(end="aborted", records=some[quarter // 2 :][:ABORTED]))
            batches.append(Batch(end="committed", records=some[quarter // 2 :]))
        for topic in (SOURCE, TARGET):
            create_topic(self.harness.kafka, topic, partitions=PARTITIONS)
        filled = [batch for batch in batches if batch.records]
        return produce(self.harness.kafka, SOURCE, filled, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run the days of the schedule; replace the first, unchanged; run the second again by a changed job."""
        runs = self.harness.catch_up(len(DAYS))
        self.cancelled_count = {day(number): True for number in DAYS}
        before = self._offsets()
        replay = self.harness.trigger(day(REPLAYED_DAY), day(REPLAYED_DAY + 1), mode="replace")
        self.harness.wait_for_success(replay)
        self.harness.require(self._offsets() == before, "a replay without a change sent something")
        self.harness.log("replayed 1 January: nothing was sent; next, 2 January with a changed job")
        self.harness.change_job("COUNT_CANCELLED = True", "COUNT_CANCELLED = False")
        self.harness.clear(runs[DAYS.index(CORRECTED_DAY)])
        self.cancelled_count[day(CORRECTED_DAY)] = False

    def with_kill(self) -> KillResult:
        """Run the fourth day."""
        offsets, messages = self._offsets(), self._messages()

        def published() -> int:
            # A request for the end offsets is quick; the messages are read only if these have changed.
            return self._messages() - messages if self._offsets() > offsets else 0

        result = self.harness.kill_publisher(
            day(KILL_DAY), day(KILL_DAY + 1), count_published=published
        )
        self.cancelled_count[day(KILL_DAY)] = False
        return result

    def check(self) -> CheckResult:
        """Check the messages that a plain consumer of committed messages reads."""
        return run_check(
            lambda: check.compare(
                lambda: check.consume(self.harness.kafka, TARGET),
                self.harness.sent,
                cancelled_count=self.cancelled_count,
                unchanged=[(day(REPLAYED_DAY), 2)],
                corrected=[day(CORRECTED_DAY)],
            )
        )

    def _messages(self) -> int:
        return len(check.consume(self.harness.kafka, TARGET))

    def _offsets(self) -> int:
        return committed_offsets(self.harness.kafka, TARGET, partitions=PARTITIONS)


def _some_late(records: Sequence[Record]) -> list[Record]:
    """Return the records in the order in which they are sent: some are sent late, with their original time."""

    def arrival(numbered: tuple[int, Record]) -> tuple[int, int]:
        number, record = numbered
        return (record.at_ms + (0 if number % LATE_EVERY else LATE_BY_MS), number)

    return [record for _, record in sorted(enumerate(records), key=arrival)]
