"""The example `fanout`: 500 topics by a pattern, a table for each, all of an interval in one commit."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from examples.checks import CheckResult, run_check
from examples.fanout import check
from examples.fanout.produce import Sender, Sent, create_topics, register
from examples.fanout.shapes import EVOLVED, framed, schema_of, table_of, topic_of, value_of
from examples.runner.harness import Harness, day
from examples.runner.writer_kill import BEFORE_SWAP, WriterKill

FIRST_DAY, SECOND_DAY, KILL_DAY = 1, 2, 3
TOPICS = 500
# Of the topics: the last ones are created after the first day, and some before them have no schema until then.
NEW = range(480, TOPICS)
LATE = range(470, 480)
EVOLVING = range(0, 470, 50)
BROKEN = range(0, TOPICS, 25)
# Kafka's and Confluent's own topics begin like this; the other one does not match the pattern.
LEFT_OUT = ("_confluent-fanout.metrics", "other.orders")
PER_DAY = 4
UNKNOWN_ID = 999_999


class Fanout:
    """One day; then new topics, late schemas and a column more; a second day; a third with a kill of its commit."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.days: list[int] = []
        self.ids: dict[int, int] = {}
        self.schemas: dict[int, Mapping[str, Any]] = {n: schema_of(n) for n in range(TOPICS)}
        self.sender: Sender | None = None

    def fill(self) -> int:
        """Create all but the new topics, register all but the late schemas, and send the first day."""
        first = range(NEW.start)
        self._create([*map(topic_of, first), *LEFT_OUT])
        self._register(range(LATE.start))
        self.sender = Sender(self.harness.kafka, "examples-fanout", self.harness.sent)
        # Records without a registered schema, which no plan can read yet: their id is that of the same schema elsewhere.
        for number in LATE:
            self.ids[number] = self.ids[number % 5]
        return self._send(FIRST_DAY, first)

    def without_kill(self) -> None:
        """Run the first day; add topics, schemas and a field; run the second day."""
        self._run(FIRST_DAY)
        self._create([topic_of(number) for number in NEW])
        self._register([*LATE, *NEW])
        for number in EVOLVING:
            self.schemas[number] = EVOLVED
        self._register(EVOLVING)
        # A topic without records in an interval costs no task and no metadata.
        self._send(SECOND_DAY, [n for n in range(TOPICS) if n % 2 == 0 or n >= LATE.start])
        self._send(KILL_DAY, range(0, TOPICS, 4))
        self._run(SECOND_DAY)

    def with_kill(self) -> WriterKill:
        """Run the third day; its commit is killed when the metadata of all tables is written, and nothing is visible."""
        self.days.append(KILL_DAY)
        return self.harness.kill_writer(day(KILL_DAY), day(KILL_DAY + 1), BEFORE_SWAP)

    def check(self) -> CheckResult:
        """Check all tables."""
        return run_check(
            lambda: check.compare(
                lambda: check.read(self.harness.open_lake()), self.harness.sent, days=self.days
            )
        )

    # ------------------------------------------------------------ topics, schemas, records

    def _create(self, names: Sequence[str]) -> None:
        began = time.monotonic()
        create_topics(self.harness.kafka, names)
        self.harness.log(f"{len(names)} topics created in {time.monotonic() - began:.1f} s")

    def _register(self, numbers: Sequence[int]) -> None:
        began = time.monotonic()
        connection = json.loads(self.harness.variables["TALLYSTICK_REGISTRY_DEFAULT"])
        ids = register(connection, [(topic_of(n), self.schemas[n]) for n in numbers])
        self.ids |= dict(zip(numbers, ids, strict=True))
        self.harness.log(
            f"{len(numbers)} subjects with {len(set(ids))} schemas registered in {time.monotonic() - began:.1f} s"
        )

    def _send(self, number: int, topics: Collection[int]) -> int:
        """Send a day: transactions over all topics that commit and abort, and plain records, some of them broken."""
        assert self.sender is not None
        records = [list(self._records(number, topic)) for topic in topics]
        half = PER_DAY // 2
        broken = [one for topic in BROKEN if topic in topics for one in self._broken(number, topic)]
        return (
            self.sender.send([one for some in records for one in some[:half]], "committed")
            + self.sender.send([one for some in records[::5] for one in some], "aborted")
            + self.sender.send(
                [*(one for some in records for one in some[half:]), *broken], "plain"
            )
            + self.sender.send(list(self._left_out(number)), "plain")
        )

    def _records(self, number: int, topic: int) -> Iterator[Sent]:
        for serial in range(PER_DAY):
            document = value_of(topic, number * 10 + serial)
            if self.schemas[topic] is EVOLVED:
                document = {**document, "channel": "web" if serial % 2 else None}
            value = framed(self.ids[topic], self.schemas[topic], document)
            yield self._sent(number, topic, serial, value, document=document)

    def _broken(self, number: int, topic: int) -> Iterator[Sent]:
        whole = framed(self.ids[topic], self.schemas[topic], value_of(topic, 0))
        values = {
            "schema_id": b"\0" + UNKNOWN_ID.to_bytes(4, "big") + whole[5:],
            "magic": b"{}",
            "truncated": whole[:-1],
        }
        for serial, (kind, value) in enumerate(values.items()):
            yield self._sent(number, topic, PER_DAY + serial, value, kind=kind)

    def _sent(self, number: int, topic: int, serial: int, value: bytes, **more: Any) -> Sent:
        at = day(number) + timedelta(hours=1 + serial)
        return Sent(
            topic=topic_of(topic),
            table=table_of(topic),
            at_ms=round(at.timestamp() * 1000),
            value=value,
            # A topic without a schema is left out; when it has one, it is read from the start of its log.
            interval=SECOND_DAY if topic in LATE and number == FIRST_DAY else number,
            **more,
        )

    def _left_out(self, number: int) -> Iterator[Sent]:
        at_ms = round((day(number) + timedelta(hours=1)).timestamp() * 1000)
        value = framed(self.ids[0], self.schemas[0], value_of(0, 0) | {"channel": None})
        for topic in LEFT_OUT:
            yield Sent(topic=topic, at_ms=at_ms, value=value, table=None, interval=number)

    def _run(self, number: int) -> None:
        self.harness.wait_for_success(self.harness.trigger(day(number), day(number + 1)))
        self.days.append(number)
