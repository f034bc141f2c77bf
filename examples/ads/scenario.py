"""The example `ads`: clicks attributed to impressions of another topic, days out of order, every record counted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from examples.ads import check
from examples.checks import CheckResult, run_check
from examples.counts.check import consume
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, Record, committed_offsets, create_topic, produce
from examples.runner.publisher_kill import KillResult

IMPRESSIONS, CLICKS = "examples-impressions", "examples-clicks"
TARGET = "examples-ads-per-hour"
PARTITIONS = 2
# The second day runs first: it reads the end of the first day from Kafka.
DAYS, KILL_DAY, REPLAYED_DAY = (2, 1), 3, 1
SEED = 2013
SHOWN_A_DAY, STRAY_A_DAY, AROUND_MIDNIGHT = 300, 20, 30
USERS, ADS = 40, 7  # the last ad has no campaign
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
# The delays of repeated events; after the last one, beyond six hours, an event is no duplicate.
REPEATED_AFTER_MS = (MINUTE_MS // 2, 20 * MINUTE_MS, 3 * HOUR_MS, 5 * HOUR_MS, 7 * HOUR_MS)
REPEATED_EVERY, LATE_EVERY, BROKEN_EVERY, LATE_BY_MS = 8, 25, 150, 10 * MINUTE_MS
IN_BATCH, ABORTED_EVERY, ABORTED = 60, 4, 10


class Ads:
    """The second day, the first day, a replay of the first; the third day with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.days: list[datetime] = []

    def fill(self) -> int:
        """Send three days of generated events, by a transactional producer per topic."""
        self.harness.log(f"the events are generated with the seed {SEED}")
        generated = events(KILL_DAY)
        create_topic(self.harness.kafka, TARGET, partitions=PARTITIONS)
        count = 0
        for topic, records in (
            (IMPRESSIONS, generated.impressions),
            (CLICKS, generated.clicks),
        ):
            create_topic(self.harness.kafka, topic, partitions=PARTITIONS)
            batches = _transactions(records)
            count += produce(self.harness.kafka, topic, batches, sent=self._sent(topic))
        return count

    def without_kill(self) -> None:
        """Run two days in reverse order; then replace the first, unchanged."""
        for number in DAYS:
            self.harness.wait_for_success(self.harness.trigger(day(number), day(number + 1)))
            self.days.append(day(number))
        self._expect_nothing_stale("2 January ran before 1 January")
        before = self._offsets()
        replay = self.harness.trigger(day(REPLAYED_DAY), day(REPLAYED_DAY + 1), mode="replace")
        self.harness.wait_for_success(replay)
        self.harness.require(self._offsets() == before, "a replay without a change sent something")
        self._expect_nothing_stale("1 January was replayed, and nothing was sent")

    def with_kill(self) -> KillResult:
        """Run the third day."""
        offsets, messages = self._offsets(), self._messages()

        def published() -> int:
            # A request for the end offsets is quick; the messages are read only if these have changed.
            return self._messages() - messages if self._offsets() > offsets else 0

        self.days.append(day(KILL_DAY))
        return self.harness.kill_publisher(
            day(KILL_DAY), day(KILL_DAY + 1), count_published=published
        )

    def check(self) -> CheckResult:
        """Check the tables, the topic and the ledger's counts."""
        return run_check(
            lambda: check.compare(
                check.read_lake(self.harness.open_lake()),
                consume(self.harness.kafka, TARGET),
                {topic: self._sent(topic) for topic in (IMPRESSIONS, CLICKS)},
                days=self.days,
                unchanged=[(day(REPLAYED_DAY), 2)],
            )
        )

    def _sent(self, topic: str) -> Path:
        return self.harness.folder / f"{topic}.jsonl"

    def _messages(self) -> int:
        return len(consume(self.harness.kafka, TARGET))

    def _offsets(self) -> int:
        return committed_offsets(self.harness.kafka, TARGET, partitions=PARTITIONS)

    def _expect_nothing_stale(self, after: str) -> None:
        stale = self.harness.status()["stale"]
        self.harness.require(not stale, f"{after}: expected no stale interval, found {len(stale)}")
        self.harness.log(f"{after}: nothing is stale")


# ---------------------------------------------------------------- the input


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The records of both topics in the order in which they arrive."""

    impressions: Sequence[Record]
    clicks: Sequence[Record]


def events(days: int) -> Events:
    """Return impressions and clicks of the first days of January 2013; always the same."""
    chance = random.Random(SEED)
    end_ms = _ms(day(days + 1))
    shown: list[Record] = []
    clicked: list[Record] = []
    for at_ms in sorted(_moments(days, chance)):
        user, ad = chance.randrange(USERS), chance.randrange(ADS)
        shown.append(_event("i", len(shown), user, ad, at_ms))
        # The same ad again for the same user, so that the last impression matters.
        if chance.random() < 0.3:
            again_ms = at_ms + chance.randrange(10 * MINUTE_MS)
            shown.append(_event("i", len(shown), user, ad, again_ms))
        if chance.random() < 0.5:  # some of them after more than half an hour
            click_ms = at_ms + chance.randrange(45 * MINUTE_MS)
            clicked.append(_event("c", len(clicked), user, ad, click_ms))
    for _ in range(STRAY_A_DAY * days):  # clicks without an impression
        at_ms = chance.randrange(_ms(day(1)), end_ms)
        user, ad = chance.randrange(USERS), chance.randrange(ADS)
        clicked.append(_event("c", len(clicked), user, ad, at_ms))
    return Events(
        impressions=_with_repeats(shown, end_ms, chance),
        clicks=_with_repeats(clicked, end_ms, chance),
    )


def _moments(days: int, chance: random.Random) -> Iterator[int]:
    """Yield the times of impressions: all day, and more in the last minutes before midnight."""
    for number in range(1, days + 1):
        start, end = _ms(day(number)), _ms(day(number + 1))
        for _ in range(SHOWN_A_DAY):
            yield chance.randrange(start, end)
        for _ in range(AROUND_MIDNIGHT):
            yield chance.randrange(end - 15 * MINUTE_MS, end)


def _event(kind: str, number: int, user: int, ad: int, at_ms: int) -> Record:
    name = f"u{user + 1}"
    value = {"id": f"{kind}{number + 1}", "user": name, "ad": f"a{ad + 1}"}
    return Record(partition=user % PARTITIONS, at_ms=at_ms, value=json.dumps(value), key=name)


def _with_repeats(records: Sequence[Record], end_ms: int, chance: random.Random) -> list[Record]:
    """Return the records in order of arrival, with duplicates, broken and late records; none after the end."""
    arriving: list[tuple[int, Record]] = []
    for number, record in enumerate(records):
        late = LATE_BY_MS if number % LATE_EVERY == 1 else 0
        arriving.append((record.at_ms + late, record))
        if number % REPEATED_EVERY == 0:
            again_ms = record.at_ms + chance.choice(REPEATED_AFTER_MS)
            # A producer's retry may go to any partition.
            partition = chance.randrange(PARTITIONS)
            arriving.append((again_ms, replace(record, at_ms=again_ms, partition=partition)))
        if number % BROKEN_EVERY == 2:
            arriving.append((record.at_ms, replace(record, value=record.value[:-1])))
    # A late record keeps its time, but no record may be of a time after the last day.
    kept = [(at, record) for at, record in arriving if max(at, record.at_ms) < end_ms]
    return [record for _, record in sorted(kept, key=lambda a: (a[0], a[1].value))]


def _transactions(records: Sequence[Record]) -> list[Batch]:
    """Return the records in transactions; before some, their first records are sent in one that is aborted."""
    batches: list[Batch] = []
    for number, start in enumerate(range(0, len(records), IN_BATCH)):
        batch = records[start : start + IN_BATCH]
        if number % ABORTED_EVERY == 1:
            batches.append(Batch(end="aborted", records=batch[:ABORTED]))
        batches.append(Batch(end="committed", records=batch))
    return batches


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
