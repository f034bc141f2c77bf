"""The example `ads`: clicks attributed to impressions over two topics, days out of order, and a count of everything."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from examples.ads import check
from examples.checks import Ruling, ruling
from examples.counts.check import consume
from examples.runner.produce import Batch, Record, committed_offsets, create_topic, produce
from examples.runner.scene import Scene, day
from examples.runner.strike import Blow

IMPRESSIONS, CLICKS = "examples-impressions", "examples-clicks"
TARGET = "examples-ads-per-hour"
PARTITIONS = 2
# The second day runs first: it reads the end of the first one in Kafka.
DAYS, STRUCK_DAY, REPLAYED_DAY = (2, 1), 3, 1
SEED = 2013
SHOWN_A_DAY, STRAY_A_DAY, AROUND_MIDNIGHT = 300, 20, 30
USERS, ADS = 40, 7  # of the last ad nobody knows the campaign
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
# A duplicate comes so much later; the last one beyond the six hours, where it is none.
AGAIN_AFTER_MS = (MINUTE_MS // 2, 20 * MINUTE_MS, 3 * HOUR_MS, 5 * HOUR_MS, 7 * HOUR_MS)
AGAIN_EVERY, LATE_EVERY, BROKEN_EVERY, LATE_BY_MS = 8, 25, 150, 10 * MINUTE_MS
IN_BATCH, ABORTED_EVERY, ABORTED = 60, 4, 10


class Ads:
    """The second day, the first one, a replay of it; the third day under a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.days: list[datetime] = []

    def fill(self) -> int:
        """Three days of events that a seeded generator made up, by a transactional producer per topic."""
        self.scene.say(f"the events are made up, by a generator with the seed {SEED}")
        made = events(STRUCK_DAY)
        create_topic(self.scene.kafka, TARGET, partitions=PARTITIONS)
        count = 0
        for topic, some in ((IMPRESSIONS, made.impressions), (CLICKS, made.clicks)):
            create_topic(self.scene.kafka, topic, partitions=PARTITIONS)
            count += produce(self.scene.kafka, topic, _transactions(some), sent=self._sent(topic))
        return count

    def plain(self) -> None:
        """Two days in the wrong order; then mode=replace of the first, unchanged."""
        for number in DAYS:
            self.scene.green(self.scene.start(day(number), day(number + 1)))
            self.days.append(day(number))
        self._nothing_stale("2 January ran before 1 January")
        out = self._out()
        again = self.scene.start(day(REPLAYED_DAY), day(REPLAYED_DAY + 1), mode="replace")
        self.scene.green(again)
        self.scene.must(self._out() == out, "a replay of what had not changed sent something")
        self._nothing_stale("1 January was replayed, and nothing was sent")

    def struck(self) -> Blow:
        """The third day."""
        offsets, messages = self._out(), self._messages()

        def out() -> int:
            # To ask for the ends is quick; the messages are read only where these have moved.
            return self._messages() - messages if self._out() > offsets else 0

        self.days.append(day(STRUCK_DAY))
        return self.scene.strike(day(STRUCK_DAY), day(STRUCK_DAY + 1), out=out)

    def judge(self) -> Ruling:
        """The tables, the topic and the ledger's counts."""
        return ruling(
            lambda: check.judge(
                check.read_lake(self.scene.open_lake()),
                consume(self.scene.kafka, TARGET),
                {topic: self._sent(topic) for topic in (IMPRESSIONS, CLICKS)},
                days=self.days,
                silent=[(day(REPLAYED_DAY), 2)],
            )
        )

    def _sent(self, topic: str) -> Path:
        return self.scene.folder / f"{topic}.jsonl"

    def _messages(self) -> int:
        return len(consume(self.scene.kafka, TARGET))

    def _out(self) -> int:
        return committed_offsets(self.scene.kafka, TARGET, partitions=PARTITIONS)

    def _nothing_stale(self, after: str) -> None:
        stale = self.scene.status()["stale"]
        self.scene.must(not stale, f"{after}: {len(stale)} intervals are stale")
        self.scene.say(f"{after}: nothing is stale")


# ---------------------------------------------------------------- what is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The records of both topics in the order in which they arrive."""

    impressions: Sequence[Record]
    clicks: Sequence[Record]


def events(days: int) -> Events:
    """Impressions and clicks of the first days of January 2013; always the same ones."""
    chance = random.Random(SEED)
    end_ms = _ms(day(days + 1))
    shown: list[Record] = []
    clicked: list[Record] = []
    for at_ms in sorted(_moments(days, chance)):
        user, ad = chance.randrange(USERS), chance.randrange(ADS)
        shown.append(_event("i", len(shown), user, ad, at_ms))
        if (
            chance.random() < 0.3
        ):  # the same ad before the same eyes, so that it matters which one was last
            again_ms = at_ms + chance.randrange(10 * MINUTE_MS)
            shown.append(_event("i", len(shown), user, ad, again_ms))
        if chance.random() < 0.5:  # some of them after the half hour
            click_ms = at_ms + chance.randrange(45 * MINUTE_MS)
            clicked.append(_event("c", len(clicked), user, ad, click_ms))
    for _ in range(STRAY_A_DAY * days):  # clicks on what was never shown
        at_ms = chance.randrange(_ms(day(1)), end_ms)
        user, ad = chance.randrange(USERS), chance.randrange(ADS)
        clicked.append(_event("c", len(clicked), user, ad, at_ms))
    return Events(
        impressions=_arriving(shown, end_ms, chance), clicks=_arriving(clicked, end_ms, chance)
    )


def _moments(days: int, chance: random.Random) -> Iterator[int]:
    """When something is shown: all day long, and most of all in the last minutes before midnight."""
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


def _arriving(made: Sequence[Record], end_ms: int, chance: random.Random) -> list[Record]:
    """The records with their duplicates, broken ones between them, and some that arrive late; none after the end."""
    found: list[tuple[int, Record]] = []
    for number, record in enumerate(made):
        late = LATE_BY_MS if number % LATE_EVERY == 1 else 0
        found.append((record.at_ms + late, record))
        if number % AGAIN_EVERY == 0:
            again_ms = record.at_ms + chance.choice(AGAIN_AFTER_MS)
            # Wherever the producer's retry is sent to.
            partition = chance.randrange(PARTITIONS)
            found.append((again_ms, replace(record, at_ms=again_ms, partition=partition)))
        if number % BROKEN_EVERY == 2:
            found.append((record.at_ms, replace(record, value=record.value[:-1])))
    # A record keeps its time where it arrives late, but none may be of a time after the last day.
    kept = [one for one in found if max(one[0], one[1].at_ms) < end_ms]
    return [record for _, record in sorted(kept, key=lambda one: (one[0], one[1].value))]


def _transactions(records: Sequence[Record]) -> list[Batch]:
    """The records in transactions; some are aborted after a few, and sent again: the first copies count for nothing."""
    batches: list[Batch] = []
    for number, start in enumerate(range(0, len(records), IN_BATCH)):
        some = records[start : start + IN_BATCH]
        if number % ABORTED_EVERY == 1:
            batches.append(Batch(end="aborted", records=some[:ABORTED]))
        batches.append(Batch(end="committed", records=some))
    return batches


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
