"""The example `average`: running averages per sensor, their state committed beside them, in whatever order days run."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime

from examples.average import check
from examples.average.check import Told
from examples.checks import Ruling, ruling
from examples.checks.sent import part
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.scene import Scene, day
from examples.runner.strike import Blow

TOPIC, PARTITIONS = "examples-readings", 2
# The last day runs first: it and the second day cannot see what is not committed yet.
DAYS, STRUCK_DAY, REPLAYED_DAY = (3, 2, 1), 4, 1
SENSORS = 6
EVERY_MS, LATE_BY_MS = 20 * 60_000, 45 * 60_000
# Every so manieth reading arrives late, those of the last hour after midnight: in the next day's interval.
LATE_EVERY = 7
ABORTED = 30
SEED = 2013


class Average:
    """Three days backwards, a refresh; one replayed by a changed job, a refresh; the fourth day under a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.folder = scene.folder / "averages"
        self.days: list[datetime] = []
        self.told: list[Told] = []
        self.calibrated = False

    def fill(self) -> int:
        """Four days of readings that nobody took: a seeded generator made them up."""
        self.scene.say(f"the readings are made up, by a generator with the seed {SEED}")
        made = readings(STRUCK_DAY)
        batches: list[Batch] = []
        quarter = len(made) // STRUCK_DAY
        for start in range(0, len(made), quarter):
            some = made[start : start + quarter]
            batches.append(Batch(end="aborted", records=some[:ABORTED]))
            batches.append(Batch(end="committed", records=some))
        create_topic(self.scene.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.scene.kafka, TOPIC, batches, sent=self.scene.sent)

    def plain(self) -> None:
        """The days backwards, and one run for what is stale then; the same after a replay by a changed job."""
        for number in DAYS:
            self._run(number)
        self._stale([day(2), day(3)], "three days ran backwards")
        self._refresh()
        self.scene.change_job("CALIBRATED = False", "CALIBRATED = True")
        self.calibrated = True
        self._run(REPLAYED_DAY, mode="replace")
        self._stale([day(2), day(3)], "the job was changed, and the first day replayed")
        self._refresh()

    def struck(self) -> Blow:
        """The fourth day."""
        self.days.append(day(STRUCK_DAY))
        file = self.folder / f"{part(day(STRUCK_DAY))}.jsonl"
        blow = self.scene.strike(
            day(STRUCK_DAY), day(STRUCK_DAY + 1), out=lambda: int(file.exists())
        )
        self._stale([], "the fourth day is there")
        return blow

    def judge(self) -> Ruling:
        """Every version of both tables, and the folder."""
        return ruling(
            lambda: check.judge(
                check.versions(self.scene.open_lake()),
                self.folder,
                self.scene.sent,
                days=self.days,
                calibrated=self.calibrated,
                told=self.told,
            )
        )

    def _run(self, number: int, **conf: str) -> None:
        self.scene.green(self.scene.start(day(number), day(number + 1), **conf))
        if day(number) not in self.days:
            self.days.append(day(number))

    def _refresh(self) -> None:
        self.scene.green(self.scene.refresh())
        self._stale([], "one run with mode=refresh")

    def _stale(self, expected: Sequence[datetime], after: str) -> None:
        """Ask `tally status` what is stale, and keep the answer for the judge."""
        status = self.scene.status()
        found = [datetime.fromisoformat(one["from"]) for one in status["stale"]]
        shown = ", ".join(f"{one:%-d January}" for one in found) or "nothing"
        self.scene.say(f"{after}: stale by tally status is {shown}")
        self.scene.must(found == [*expected], f"stale is {shown}; expected {len(expected)} days")
        self.told.append(Told(version=status["version"], stale=frozenset(found)))


def readings(days: int) -> list[Record]:
    """Readings of the first days of January 2013 in the order in which they arrive; always the same ones.

    The last sensor is put up on the second day, and the first falls silent with it: its average goes on as it was.
    """
    chance = random.Random(SEED)
    made: list[tuple[int, Record]] = []
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
            late = len(made) % LATE_EVERY == 0 and at_ms + LATE_BY_MS < end_ms
            record = Record(
                partition=number % PARTITIONS,
                at_ms=at_ms,
                value=json.dumps(value),
                key=f"s{number}",
            )
            made.append((at_ms + (LATE_BY_MS if late else 0), record))
    return [record for _, record in sorted(made, key=lambda one: (one[0], one[1].value))]
