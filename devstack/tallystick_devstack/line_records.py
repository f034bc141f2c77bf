"""Makes records of lines: their time and key from fields, and what is done with a line that has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from tallystick.errors import InvalidRequest
from tallystick_devstack.json_lines import Line
from tallystick_devstack.producing import NewRecord
from tallystick_devstack.record_fields import BadLineError, Fields, TimeRange, field_names

BadLines = Literal["refuse", "skip", "send"]
BAD_LINES: tuple[BadLines, ...] = get_args(BadLines)
# Clocks and networks make records a little late; this much is a file in another order.
LATE_MS = 60_000
_SHOWN = 80


@dataclass(slots=True, kw_only=True)
class LineRecords:
    """The records of lines in their order, and counts of what was met. A bad line has no usable time or key.

    `late`: the lines whose time is more than a minute before that of an earlier line; `latest_by_ms`: by how much.
    `bad_lines`: refuse raises InvalidRequest at a bad line, skip leaves it out, send gives it the time of the line before
    it, `first_ms` if there is none, else the time of sending.
    """

    name: str
    fields: Fields
    allowed: TimeRange
    bad_lines: BadLines = "refuse"
    first_ms: int | None = None
    records: int = 0
    bad: int = 0
    without_key: int = 0
    first_bad: str | None = None
    hint: str | None = None
    one_document: bool = False
    late: int = 0
    latest_by_ms: int = 0
    seen: set[str] = field(default_factory=set)

    def of(self, lines: Iterable[Line]) -> Iterator[NewRecord]:
        """Yield the record of each line. Raises InvalidRequest at a bad line if `bad_lines` is refuse."""
        read = self.fields.reader(self.allowed)
        last_ms = self.first_ms
        highest_ms = 0
        for line in lines:
            if not self.records + self.bad:
                self._look_at_first(line)
            at_ms: int | None = None
            key: bytes | None = None
            if self.fields.needed:
                try:
                    at_ms, key = read(line.value)
                except BadLineError as error:
                    self._count_bad(line, error)
                    if self.bad_lines == "skip":
                        continue
                    at_ms = last_ms
                else:
                    self.first_ms = at_ms if self.first_ms is None else self.first_ms
                    last_ms = at_ms
                    if at_ms is not None:
                        self.late += highest_ms - at_ms > LATE_MS
                        self.latest_by_ms = max(self.latest_by_ms, highest_ms - at_ms)
                        highest_ms = max(highest_ms, at_ms)
                    self.without_key += self.fields.key is not None and key is None
            self.records += 1
            yield NewRecord(line=line.number, value=line.value, key=key, at_ms=at_ms)

    def check_key(self) -> None:
        """Raise InvalidRequest if there were records, and the key's field had a value in none of them."""
        good = self.records - (self.bad if self.bad_lines == "send" else 0)
        if self.fields.key is not None and 0 < good == self.without_key:
            raise InvalidRequest(
                f"{self.name}: expected a field {self.fields.key!r} for --key, found no value of it in {good:,} lines. "
                "Nothing was sent.",
                hint=self._fields_hint(),
            )

    def refusal(self, *, nothing_sent: bool = False) -> InvalidRequest:
        """Return the error for bad lines that are refused."""
        hint = (
            "correct the line; or leave such lines out with --bad-lines skip, or send them as they are with --bad-lines "
            "send, with the time of the line before."
        )
        if self.one_document:
            hint = f"make one line of each object: jq -c '.[]' {self.name}."
        elif not self.records:
            hint = self.hint or self._fields_hint()
        more = f" It is one of {self.bad:,} such lines." if self.bad > 1 else ""
        more += " Nothing was sent." if nothing_sent else ""
        return InvalidRequest(f"{self.name}, {self.first_bad}.{more}", hint=hint)

    def _fields_hint(self) -> str:
        if self.seen:
            return f"use a field that the lines have: {', '.join(sorted(self.seen))}; a.b is the field b of the object a."
        return (
            "make one JSON object of each line first: docs/quickstart/own-topic.md has commands for CSV, and for a JSON "
            "array."
        )

    def _count_bad(self, line: Line, error: BadLineError) -> None:
        self.bad += 1
        if self.first_bad is None:
            self.hint = error.hint
            text = line.value[: 4 * _SHOWN].decode(errors="backslashreplace")
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            expected = " and ".join(
                f"a field {name!r} for {option}"
                for option, name in (("--time", self.fields.time), ("--key", self.fields.key))
                if name is not None
            )
            self.first_bad = f"line {line.number}: expected a JSON object with {expected}, found: {error}: {shown!r}"
        if self.bad_lines == "refuse":
            raise self.refusal()

    def _look_at_first(self, line: Line) -> None:
        text = line.value.strip()
        self.one_document = text.startswith(b"[") or text == b"{"
        self.seen = set(field_names(text))
