"""The example `counts`: flights per hour and airport, from topic to topic, each count once for who reads committed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from examples.checks import Ruling, ruling
from examples.counts import check
from examples.runner.produce import Batch, Record, committed_offsets, create_topic, flights, produce
from examples.runner.scene import Scene, day
from examples.runner.strike import Blow

SOURCE, TARGET = "examples-counts", "examples-flights-per-hour"
PARTITIONS = 3
DAYS, STRUCK_DAY, REPLAYED_DAY, CORRECTED_DAY = (1, 2, 3), 4, 1, 2
# Every hundredth flight is sent three hours late, some of them after midnight: their windows get counts from two days.
LATE_EVERY, LATE_BY_MS = 100, 3 * 3_600_000
ABORTED = 40


class Counts:
    """Three days by the schedule, one replayed unchanged, one by a changed job, the fourth under a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.cancelled_count: dict[datetime, bool] = {}

    def fill(self) -> int:
        """Four days of real flights by transactional producers; one transaction a day, of copies, is aborted."""
        records = _some_late(flights(1, STRUCK_DAY, partitions=PARTITIONS))
        batches: list[Batch] = []
        quarter = len(records) // STRUCK_DAY
        for start in range(0, len(records), quarter):
            some = records[start : start + quarter]
            batches.append(Batch(end="committed", records=some[: quarter // 2]))
            batches.append(Batch(end="aborted", records=some[quarter // 2 :][:ABORTED]))
            batches.append(Batch(end="committed", records=some[quarter // 2 :]))
        for topic in (SOURCE, TARGET):
            create_topic(self.scene.kafka, topic, partitions=PARTITIONS)
        filled = [batch for batch in batches if batch.records]
        return produce(self.scene.kafka, SOURCE, filled, sent=self.scene.sent)

    def plain(self) -> None:
        """The schedule's days; mode=replace of the first, unchanged; the second again by a changed job."""
        runs = self.scene.catch_up(len(DAYS))
        self.cancelled_count = {day(number): True for number in DAYS}
        sent = self._out()
        again = self.scene.start(day(REPLAYED_DAY), day(REPLAYED_DAY + 1), mode="replace")
        self.scene.green(again)
        self.scene.must(self._out() == sent, "a replay of what had not changed sent something")
        self.scene.say(
            "replayed 1 January: nothing was sent; now the job is changed, and 2 January"
        )
        self.scene.change_job("COUNT_CANCELLED = True", "COUNT_CANCELLED = False")
        self.scene.clear(runs[DAYS.index(CORRECTED_DAY)])
        self.cancelled_count[day(CORRECTED_DAY)] = False

    def struck(self) -> Blow:
        """The fourth day."""
        offsets, messages = self._out(), self._messages()

        def out() -> int:
            # To ask for the ends is quick; the messages are read only where these have moved.
            return self._messages() - messages if self._out() > offsets else 0

        blow = self.scene.strike(day(STRUCK_DAY), day(STRUCK_DAY + 1), out=out)
        self.cancelled_count[day(STRUCK_DAY)] = False
        return blow

    def judge(self) -> Ruling:
        """A plain consumer of committed messages."""
        return ruling(
            lambda: check.judge(
                lambda: check.consume(self.scene.kafka, TARGET),
                self.scene.sent,
                cancelled_count=self.cancelled_count,
                silent=[(day(REPLAYED_DAY), 2)],
                corrected=[day(CORRECTED_DAY)],
            )
        )

    def _messages(self) -> int:
        return len(check.consume(self.scene.kafka, TARGET))

    def _out(self) -> int:
        return committed_offsets(self.scene.kafka, TARGET, partitions=PARTITIONS)


def _some_late(records: Sequence[Record]) -> list[Record]:
    """The records in the order in which they are sent: some arrive late, with the time at which they happened."""

    def arrival(numbered: tuple[int, Record]) -> tuple[int, int]:
        number, record = numbered
        return (record.at_ms + (0 if number % LATE_EVERY else LATE_BY_MS), number)

    return [record for _, record in sorted(enumerate(records), key=arrival)]
