"""An output in memory that behaves like a topic with a transactional producer, and may die at any of its steps.

Batches land whole, the last publisher to begin fences the others, and the progress of a publication lands with its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import OutputBusy, OutputRefused
from tallystick.outputs.port import Publication, Scope
from tallystick.pipeline import Replaced

BATCH_ROWS = 2


class Killed(BaseException):
    """The process ended here: no later code ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declaration of the output in a pipeline."""

    name: str = "feed"
    table: str = "events"
    replaced: Replaced = "correct"
    target: str = "memory:feed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row as the receiver gets it: `sign` 1 adds the row, -1 removes it."""

    plan: str
    number: int
    sign: int
    row: tuple[Any, ...]


@dataclass
class Wire:
    """The state outside the lake: messages in order, the epoch that may send, and the last publication's progress."""

    messages: list[Message] = field(default_factory=list)
    epoch: int = 0
    place: tuple[str, int] | None = None

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the current rows, each as often as it was added and not removed; a negative count is a violation."""
        counts: dict[tuple[Any, ...], int] = {}
        for message in self.messages:
            counts[message.row] = counts.get(message.row, 0) + message.sign
        assert min(counts.values(), default=0) >= 0, counts
        return sorted(row for row, count in counts.items() for _ in range(count))

    def duplicates(self) -> list[tuple[str, int]]:
        """Return the places that were sent more than once."""
        places = [(m.plan, m.number) for m in self.messages]
        return sorted({p for p in places if places.count(p) > 1})


class FakeOutput:
    """A publisher of one wire. `step` is called before each effect outside the process; it may raise Killed."""

    def __init__(
        self,
        wire: Wire,
        *,
        step: Callable[[str], None] = lambda _: None,
        refuses: Callable[[tuple[Any, ...]], bool] = lambda _: False,
    ) -> None:
        self.wire, self.step, self.refuses = wire, step, refuses
        self.epoch = 0
        self.prepared: list[str] = []
        self.aborted: list[str] = []
        self.closed = 0

    def begin(self, scope: Scope) -> None:
        """Fence the publishers that began before."""
        assert scope.pipeline
        self.step("begin")
        self.wire.epoch += 1
        self.epoch = self.wire.epoch

    def prepare(self, publication: Publication) -> None:
        """Refuse rows that the receiver would not accept, before any is sent."""
        self.step("prepare")
        for row in rows_of(publication):
            if self.refuses(row):
                raise OutputRefused(f"{publication}: {row} does not fit.", hint="fix the job.")
        self.prepared.append(publication.plan)

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Send the messages after this plan's progress on the wire."""
        self._check_epoch()
        place = self.wire.place
        start = place[1] if place is not None and place[0] == publication.plan else 0
        assert not start or resumed, "the ledger did not record that it was begun"
        messages = list(_messages(publication))[start:]
        for low in range(0, len(messages), BATCH_ROWS):
            batch = messages[low : low + BATCH_ROWS]
            self.step("send")
            self._check_epoch()
            self.wire.messages += batch
            self.wire.place = (publication.plan, start + low + len(batch))
            self.step("sent")
        self._check_epoch()

    def abort(self, publication: Publication) -> None:
        """Record the plan."""
        self.aborted.append(publication.plan)

    def close(self) -> None:
        """Count the call."""
        self.closed += 1

    def _check_epoch(self) -> None:
        if self.epoch != self.wire.epoch:
            raise OutputBusy("another publisher has the output.", hint="nothing.")


def rows_of(publication: Publication) -> list[tuple[Any, ...]]:
    """Return the rows of a publication."""
    return list(_tuples(publication.rows.batches()))


def _messages(publication: Publication) -> Iterable[Message]:
    changes = [
        *((-1, row) for row in _tuples(publication.rows_before.batches())),
        *((1, row) for row in _tuples(publication.rows.batches())),
    ]
    for number, (sign, row) in enumerate(changes):
        yield Message(plan=publication.plan, number=number, sign=sign, row=row)


def _tuples(batches: Iterable[Any]) -> Iterable[tuple[Any, ...]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield tuple(row.values())
