"""Judges the example `counts`: the topic as a plain consumer of committed messages sees it, against counts by DuckDB.

The consumer is librdkafka, which neither reads nor writes anything in tallystick.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from examples.checks import Ruling, finding
from examples.checks.sent import by_day, part, read_sent

_SILENT_S = 30.0
_HEADERS = "tallystick."


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message with the headers that docs/reference/outputs.md names."""

    key: str
    value: dict[str, Any]
    interval: str
    generation: int
    plan: str
    number: int
    identity: str
    operation: str
    corrects: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a consumer holds of one row of one interval."""

    generation: int
    hour: str
    origin: str
    flights: int


def consume(kafka: Mapping[str, str], topic: str) -> list[Message]:
    """All committed messages of a topic, each partition in its order; raises TimeoutError where the broker is silent.

    `kafka`: how librdkafka reaches the broker, with user and password if it asks for them.
    """
    consumer = Consumer(
        {
            **kafka,
            "group.id": f"judge-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_SILENT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        found: list[Message] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            got = consumer.poll(_SILENT_S)
            if got is None:
                raise TimeoutError(f"nothing of {topic} within {_SILENT_S:g} s")
            partition = got.partition()
            assert partition is not None
            if got.error() is not None:
                ended.add(partition)  # the end of the partition: the only error that is asked for
            else:
                found.append(_message(got))
        return found
    finally:
        consumer.close()


def _message(got: Any) -> Message:
    headers = {name: value.decode() for name, value in got.headers()}
    corrects = headers.get(f"{_HEADERS}corrects")
    return Message(
        key=got.key().decode(),
        value=json.loads(got.value()),
        interval=headers[f"{_HEADERS}interval"],
        generation=int(headers[f"{_HEADERS}generation"]),
        plan=headers[f"{_HEADERS}plan"],
        number=int(headers[f"{_HEADERS}message"]),
        identity=headers[f"{_HEADERS}identity"],
        operation=headers[f"{_HEADERS}operation"],
        corrects=None if corrects is None else int(corrects),
    )


def judge(
    read: Callable[[], Sequence[Message]],
    sent: Path,
    *,
    cancelled_count: Mapping[datetime, bool],
    silent: Collection[tuple[datetime, int]],
    corrected: Collection[datetime],
) -> Ruling:
    """Compare what a consumer holds with counts of what was sent.

    `cancelled_count`: for each day that was played, whether its job counts cancelled flights. `silent`: days with
    generations of which nothing may be sent, since nothing in them changed; `corrected`: days of which something must.
    """
    messages = read()
    held, broken = apply(messages)
    totals: Counter[tuple[str, str]] = Counter()
    for row in held.values():
        totals[row.hour, row.origin] += row.flights
    truth = _counts(sent, cancelled_count)
    places = Counter((m.plan, m.number) for m in messages)
    spoke = {(m.interval, m.generation) for m in messages}
    changed = {m.interval for m in messages if m.operation != "row"}
    kinds = Counter(m.operation for m in messages)
    flights = sum(truth.values())
    return Ruling(
        rows=len(messages),
        findings=[
            finding(
                "once",
                f"{len(messages):,} messages, each number of each plan once",
                next(
                    (
                        f"message {n} of plan {p} was sent {c} times"
                        for (p, n), c in places.items()
                        if c > 1
                    ),
                    None,
                ),
            ),
            finding(
                "corrections",
                ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
                + ": each names what it corrects, and it was there",
                broken
                or next(
                    (f"nothing was corrected on {d}" for d in corrected if part(d) not in changed),
                    None,
                ),
            ),
            finding(
                "silence",
                f"{len(silent)} replay of what had not changed sent nothing",
                next(
                    (
                        f"day {d}, generation {g} was sent again"
                        for d, g in silent
                        if (part(d), g) in spoke
                    ),
                    None,
                ),
            ),
            finding(
                "counts",
                f"{len(truth):,} windows with {flights:,} flights equal a GROUP BY of what was sent",
                _difference(truth, totals),
            ),
            finding(
                "keys",
                "each message's key is its window's hour and origin",
                next(
                    (
                        f"{m.key} of {m.value}"
                        for m in messages
                        if json.loads(m.key) != [m.value["hour"], m.value["origin"]]
                    ),
                    None,
                ),
            ),
        ],
    )


def apply(messages: Sequence[Message]) -> tuple[dict[tuple[str, str], Held], str | None]:
    """What a consumer that follows the headers holds, by interval and identity; the first message that does not fit."""
    held: dict[tuple[str, str], Held] = {}
    problem: str | None = None
    for message in messages:
        place = (message.interval, message.identity)
        there = held.get(place)
        if message.operation == "row":
            fits = there is None
        else:
            # A generation in between may have changed other rows only, and sent nothing of this one.
            fits = (
                there is not None
                and message.corrects is not None
                and there.generation <= message.corrects < message.generation
            )
        if not fits:
            problem = problem or f"a {message.operation} of {place} meets {there}: {message.value}"
        if message.operation == "retraction":
            held.pop(place, None)
        else:
            held[place] = Held(
                generation=message.generation,
                hour=message.value["hour"],
                origin=message.value["origin"],
                flights=message.value["flights"],
            )
    return held, problem


def _counts(sent: Path, cancelled_count: Mapping[datetime, bool]) -> dict[tuple[str, str], int]:
    """Flights per hour and origin, by DuckDB over the values that were sent and committed."""
    days = by_day(read_sent(sent))
    values = [
        (one.value, counted)
        for day, counted in cancelled_count.items()
        for one in days[day]
        if one.counts
    ]
    table = pa.table(
        {"value": [v for v, _ in values], "cancelled_count": [c for _, c in values]},
        schema=pa.schema([("value", pa.string()), ("cancelled_count", pa.bool_())]),
    )
    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False}) as db:
        db.register("sent", table)
        rows = db.execute(
            "SELECT left(value->>'departure', 13) || ':00:00Z' AS hour, value->>'origin' AS origin, count(*) "
            "FROM (SELECT value::JSON AS value, cancelled_count FROM sent) "
            "WHERE cancelled_count OR (value->>'dep_time') IS NOT NULL GROUP BY 1, 2"
        ).fetchall()
    return {(hour, origin): int(count) for hour, origin, count in rows}


def _difference(
    truth: Mapping[tuple[str, str], int], totals: Mapping[tuple[str, str], int]
) -> str | None:
    for window in sorted({*truth, *totals}):
        if truth.get(window, 0) != totals.get(window, 0):
            return f"{window}: {totals.get(window, 0)} flights were sent to consumers; counted are {truth.get(window, 0)}"
    return None
