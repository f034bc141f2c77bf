"""The log of calls: notes in the lake of what a receiver has acknowledged. Each is written once and never deleted.

There are two forms. `Acknowledged` has one note per some hundred calls of a plan. This is enough if a call belongs to
one plan and the receiver honours its idempotency key. `Tries` has notes per key. It is used if a key counts over all
intervals, or if the receiver does not honour keys, so that each try must be noted before it is made.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tallystick.errors import Corrupt, RetryLater
from tallystick.format import keys
from tallystick.format.calls import Call, Calls
from tallystick.outputs.calls.effects import Effect
from tallystick.outputs.port import Publication
from tallystick.runtime import system_runtime
from tallystick.store import Store
from tallystick.store.create_once import create_once

# A call waits for its note, and a receiver must not wait as long as a commit may.
UNKNOWN_S = 10.0
RETRY_S = 30.0
PAUSE_S = 0.5


def _create(store: Store, key: str, body: bytes) -> bool:
    """Create an object; return True if it has these bytes now, also if an earlier reply was lost.

    Safe to repeat: a second call finds the first one's bytes. Raises OutcomeUnknown after UNKNOWN_S.
    """
    return create_once(store, key, body, runtime=system_runtime(), unknown_s=UNKNOWN_S)


def _create_with_retry(store: Store, key: str, body: bytes) -> None:
    """Note what a receiver has acknowledged: without a note, it would be in doubt.

    Tries again while the store is unavailable. Safe to repeat: as `_create`. Raises RetryLater after RETRY_S.
    """
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            _create(store, key, body)
        except RetryLater:
            if time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(PAUSE_S)


# ---------------------------------------------------------------- by the number of a plan's calls


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as ranges `first <= number < end`, in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


def calls_of(publication: Publication, first: int, end: int) -> Calls:
    """Return the note that these calls of a publication are acknowledged."""
    return Calls(
        output=publication.output,
        interval=publication.interval.part,
        generation=publication.generation,
        plan=publication.plan,
        first=first,
        end=end,
    )


class Acknowledged:
    """The acknowledged calls of one plan, from the notes that existed when this object was created."""

    def __init__(self, store: Store, publication: Publication) -> None:
        """Read the notes. Raises Corrupt if this version cannot read one of them."""
        self.store, self.publication = store, publication
        prefix = keys.calls_prefix(publication.output, publication.interval.part, publication.plan)
        self._spans: list[tuple[int, int]] = []
        for first, end in sorted(self._read(listed.key) for listed in store.list(prefix)):
            # If two processes published at once, they have noted some calls twice, in ranges that overlap.
            if self._spans and first <= self._spans[-1][1]:
                self._spans[-1] = (self._spans[-1][0], max(end, self._spans[-1][1]))
            else:
                self._spans.append((first, end))

    def _read(self, key: str) -> tuple[int, int]:
        found = self.store.get(key)
        where = f"{self.store.uri}/{key}"
        if found is None:
            raise Corrupt(
                f"{where} was listed but does not exist.",
                hint="find out who deletes notes of calls: gc never does. Nothing was sent.",
            )
        note = Calls.decode(found.body, where=where)
        if note.key != key:
            raise Corrupt(
                f"{where}: expected its own key inside, found {note.key}.",
                hint="restore it from a bucket version. Nothing was sent.",
            )
        return note.first, note.end

    def __contains__(self, effect: Effect) -> bool:
        place = bisect_right(self._spans, effect.number, key=lambda span: span[0])
        return place > 0 and effect.number < self._spans[place - 1][1]

    def note(self, numbers: Collection[int]) -> None:
        """Note calls that are acknowledged.

        Safe to repeat: the same numbers give the same object with the same bytes.
        """
        for first, end in spans(numbers):
            note = calls_of(self.publication, first, end)
            _create_with_retry(self.store, note.key, note.encode())


# ---------------------------------------------------------------- by key


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The notes of one key: the tries that began, those that the receiver did not accept, and if the call is sent."""

    tries: frozenset[int] = frozenset()
    no: frozenset[int] = frozenset()
    sent: bool = False

    @property
    def last(self) -> int:
        """The number of the last try; 0 if there was none."""
        return max(self.tries, default=0)

    @property
    def in_doubt(self) -> bool:
        """True if a try began and its outcome is unknown."""
        return not self.sent and bool(self.tries - self.no)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """The notes of one output by key. The first try of a key takes it permanently, for the row that it names."""

    store: Store
    publication: Publication
    publisher: str = field(default_factory=lambda: uuid.uuid4().hex)

    def known(self, effect: Effect) -> Known:
        """Read the notes of a key, in one request."""
        prefix = keys.call_prefix(self.publication.output, effect.digits)
        notes = [self._state(listed.key) for listed in self.store.list(prefix)]
        return Known(
            tries=frozenset(n for what, n in notes if what == "try"),
            no=frozenset(n for what, n in notes if what == "no"),
            sent=("sent", 0) in notes,
        )

    def _state(self, key: str) -> tuple[str, int]:
        try:
            return keys.call_parts(key)
        except ValueError:
            raise Corrupt(
                f"{self.store.uri}/{key}: expected a note of a call in the format of this version, found another object.",
                hint="run the version of tallystick that wrote it, or remove it if a person put it there. Nothing "
                "was sent.",
            ) from None

    def taken_by_another(self, effect: Effect) -> bool:
        """Return True if another interval or generation has taken the key.

        The call was started for that interval and generation, so it is completed for them.
        """
        key = keys.call_try(self.publication.output, effect.digits, 1)
        found = self.store.get(key)
        if found is None:
            return False
        note = Call.decode(found.body, where=f"{self.store.uri}/{key}")
        return (note.interval, note.plan) != (self.publication.interval.part, self.publication.plan)

    def begin(self, effect: Effect, number: int) -> bool:
        """Note that a try is about to be made; return False if another publisher has noted this try.

        Safe to repeat: the note contains the publisher that wrote it.
        """
        key = keys.call_try(self.publication.output, effect.digits, number)
        return _create(self.store, key, self._note(effect))

    def acknowledge(self, effect: Effect) -> None:
        """Note that the receiver has acknowledged the call. Safe to repeat: an earlier note has the same meaning."""
        _create_with_retry(self.store, self.where_sent(effect), self._note(effect))

    def deny(self, effect: Effect, number: int) -> None:
        """Note that the receiver certainly did not accept that try.

        Safe to repeat: an earlier note has the same meaning.
        """
        key = keys.call_no(self.publication.output, effect.digits, number)
        _create_with_retry(self.store, key, self._note(effect))

    def where_sent(self, effect: Effect) -> str:
        """Return the key of the note that the call is sent."""
        return keys.call_sent(self.publication.output, effect.digits)

    def _note(self, effect: Effect) -> bytes:
        return Call(
            output=self.publication.output,
            key=effect.key,
            interval=self.publication.interval.part,
            generation=self.publication.generation,
            plan=self.publication.plan,
            row=effect.row_number,
            publisher=self.publisher,
        ).encode()
