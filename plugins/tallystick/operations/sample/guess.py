"""Guesses the columns of a topic from some of its values. The decoder itself decides which type fits; pure.

A guess is a proposal for a person: what the values cannot show (money or measure? an id or a time?) becomes a note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.errors import InvalidPipeline
from tallystick.format.columns import check_column_name
from tallystick.pipeline import Column, Json
from tallystick.pipeline.columns import JSON_TEXT, keeps_json_text
from tallystick.pipeline.paths import escaped

# A number counts as an epoch time if the field's name is one of a time and all values lie in these years.
_YEARS = (
    datetime(1990, 1, 1, tzinfo=UTC).timestamp(),
    datetime(2100, 1, 1, tzinfo=UTC).timestamp(),
)
_UNITS = (("epoch_s", 1), ("epoch_ms", 1_000), ("epoch_us", 1_000_000))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TIME_WORDS = frozenset(
    (
        *("t", "ts", "time", "timestamp", "datetime", "date", "epoch", "at", "on"),
        *("created", "updated", "modified", "start", "end"),
    )
)
_UNIT_WORDS = frozenset(("s", "ms", "us", "millis", "micros", "sec", "seconds", "utc", "gmt"))
_MONEY_NAME = re.compile(
    r"(?i)(price|amount|cost|total|fee|balance|revenue|salary|tax|fare|payment)"
)
# Days with the month's name, or in an order that only one way of writing has: 03/04/2026 is March or April.
_DAYS = (
    "%b %d %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%d %b %Y",
    "%d %B %Y",
    "%d-%b-%Y",
    "%Y/%m/%d",
    "%d.%m.%Y",
)
_FORMATS = ("%d/%b/%Y:%H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %z", "%a %b %d %H:%M:%S %z %Y")
_TIMES = ("timestamptz", "timestamp", "date")
_LONG_MAX = 2**63
_DIGITS_MAX = 38
STRUCT_FIELDS_MAX = 60
"""An object with more different fields in the sample is guessed as a map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedColumn:
    """A column, and the notes that a person should read."""

    column: Column
    notes: tuple[str, ...] = ()
    misfits: int = 0

    @property
    def is_time(self) -> bool:
        """True if a table can be partitioned by its day."""
        return self.column.type in _TIMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """The columns of the objects among the values."""

    records: int
    objects: int
    columns: tuple[GuessedColumn, ...]

    @property
    def times(self) -> tuple[GuessedColumn, ...]:
        """The columns that may be the event time: all values are there."""
        return tuple(c for c in self.columns if c.is_time and c.column.required)


class _NumberText(str):
    """A number as text."""

    __slots__ = ()


@dataclass(slots=True)
class _Field:
    """What was seen of one field."""

    name: str
    values: list[Any] = field(default_factory=list)
    nulls: int = 0


def guess(values: Iterable[bytes | None]) -> Guess:
    """Return the columns of the JSON objects among these values, in the order in which their fields appear."""
    records = 0
    objects: list[dict[str, Any]] = []
    for value in values:
        records += 1
        found = object_of(value)
        if found is not None:
            objects.append(found)
    return Guess(records=records, objects=len(objects), columns=_columns(objects))


def _columns(objects: Sequence[dict[str, Any]]) -> tuple[GuessedColumn, ...]:
    fields: dict[str, _Field] = {}
    for one in objects:
        for name, inner in one.items():
            seen = fields.setdefault(name, _Field(name))
            if inner is None:
                seen.nulls += 1
            else:
                seen.values.append(inner)
    columns: list[GuessedColumn] = []
    taken: set[str] = set()
    for field_ in fields.values():
        columns.append(_column(field_, len(objects), taken))
        taken.add(columns[-1].column.name.lower())
    return tuple(columns)


def object_of(value: bytes | None) -> dict[str, Any] | None:
    """Return the fields of a value that is a JSON object, numbers as text; None for any other value."""
    try:
        found = json.loads(
            value or b"",
            parse_int=_NumberText,
            parse_float=_NumberText,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python's parser takes and JSON does not have."""
    raise ValueError(name)


def fitting(name: str, values: Sequence[Any]) -> Column | None:
    """Return a column that decodes all of a field's values, or None."""
    known = _Field(name, values=[v for v in values if v is not None])
    if not known.values:
        return None
    found = _column(known, len(known.values), set())
    return None if found.misfits else found.column


def _column(one: _Field, objects: int, taken: set[str]) -> GuessedColumn:
    name = safe_name(one.name, taken)
    source = None if name == one.name else escaped(one.name)
    missing = objects - len(one.values)
    chosen, misfits = _chosen(one)
    notes = []
    if missing and one.values:
        notes.append(f"missing or null in {missing:,} of {objects:,}")
    if not one.values:
        notes.append("null in each record of the sample: check the type")
    notes += _notes(one, chosen, misfits)
    column = replace(chosen, name=name, required=not missing, source=source)
    return GuessedColumn(column=column, notes=tuple(notes), misfits=misfits)


def _chosen(one: _Field) -> tuple[Column, int]:
    """Return the first candidate that decodes every value, otherwise the one that decodes most, and what it does not."""
    candidates = list(_nested(one) or _candidates(one))
    values = pa.array([_encoded(value) for value in one.values], pa.binary())
    found = [(candidate, _misfits(candidate, values)) for candidate in candidates]
    return min(found, key=lambda pair: pair[1])


def _misfits(candidate: Column, values: pa.BinaryArray) -> int:
    return len(JsonDecoder(Json([candidate])).decode_values(values).dead) if len(values) else 0


def _encoded(value: Any) -> bytes:
    return f'{{"f": {_json(value)}}}'.encode()


def _json(value: Any) -> str:
    """Return a value as JSON, with numbers as they were written."""
    if isinstance(value, _NumberText):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value)


def _nested(one: _Field) -> list[Column]:
    """Return what to try if some value is an object or an array: its parts as columns, then its JSON text."""
    values = one.values
    if not any(isinstance(value, dict | list) for value in values):
        return []
    found: Column | None = None
    try:
        if all(isinstance(value, dict) for value in values):
            found = _object(one.name, values)
        elif all(isinstance(value, list) for value in values):
            inner = [element for value in values for element in value]
            element = _part("element", one.name, inner)
            found = element and Column("f", "list", fields=[element])
    except InvalidPipeline:  # more levels than a type can have
        found = None
    text = Column("f", "string", parse=JSON_TEXT)
    return [text] if found is None else [found, text]


def _object(name: str, values: Sequence[dict[str, Any]]) -> Column | None:
    """Return a struct; or a map, if the objects have too many different fields for a struct."""
    names = {name for value in values for name in value}
    if len(names) <= STRUCT_FIELDS_MAX:
        fields = [one.column for one in _columns(values)]
        return Column("f", "struct", fields=fields) if fields else None
    inner = [element for value in values for element in value.values()]
    value = _part("value", name, inner)
    return value and Column("f", "map", fields=[Column("key", "string"), value])


def _part(part: str, name: str, values: Sequence[Any]) -> Column | None:
    """Return the column of a list's elements or of a map's values; None if nothing is known of them.

    `name`: the field of the list or map, which shows if the values are times.
    """
    known = _Field(name, values=[value for value in values if value is not None])
    if not known.values:
        return None
    return replace(_column(known, len(values), set()).column, name=part, source=None)


def _candidates(one: _Field) -> Iterable[Column]:
    """Yield the columns to try, the preferred one first. A later one is used only if it decodes more values."""
    numbers = [value for value in one.values if isinstance(value, _NumberText)]
    if numbers:
        if _is_time_name(one.name) and (rule := _epoch_rule(numbers)):
            yield Column("f", "timestamptz", parse=rule)
        yield Column("f", "long")
        yield Column("f", f"decimal({_DIGITS_MAX},0)")
        yield Column("f", "double")
        if size := _decimal_size(one.values):
            yield Column("f", size)
    if any(isinstance(value, bool) for value in one.values):
        yield Column("f", "boolean")
    if any(isinstance(value, str) and not isinstance(value, _NumberText) for value in one.values):
        yield from (Column("f", kind) for kind in ("date", "timestamptz", "timestamp"))
        yield from (Column("f", "timestamptz", parse=rule) for rule in _FORMATS)
        yield from (Column("f", "date", parse=rule) for rule in _DAYS)
    yield Column("f", "string")


def _epoch_rule(numbers: Sequence[str]) -> str | None:
    """Return the unit in which all the numbers are times of our years; only one can be, so far apart are they."""
    try:
        seconds = [float(one) for one in numbers]
    except ValueError:
        return None
    for rule, factor in _UNITS:
        if all(_YEARS[0] * factor <= one < _YEARS[1] * factor for one in seconds):
            return rule
    return None


def _decimal_size(values: Sequence[Any]) -> str | None:
    """Return the decimal type of numbers of which some are strings: only a decimal reads both."""
    texts = [str(value) for value in values if isinstance(value, str)]
    if len(texts) != len(values) or all(isinstance(value, _NumberText) for value in values):
        return None
    if not all(re.fullmatch(r"-?\d{1,19}(\.\d{1,18})?", text) for text in texts):
        return None
    return f"decimal({_DIGITS_MAX},{max(len(text.partition('.')[2]) for text in texts)})"


def _notes(one: _Field, chosen: Column, misfits: int) -> Iterable[str]:
    if chosen.parse == JSON_TEXT:
        kinds = sorted({_kind(value) for value in one.values})
        yield f"decide: {' and '.join(kinds)}, kept as JSON text"
        return
    if any(map(keeps_json_text, chosen.fields)):
        yield "decide: parts of different kinds are kept as JSON text"
    if chosen.type == "map":
        yield f"decide: an object with more than {STRUCT_FIELDS_MAX} different fields"
    if misfits:
        kinds = sorted({_kind(value) for value in one.values})
        yield (
            f"decide: {' and '.join(kinds)} in the sample; as {chosen.type}, {misfits:,} of {len(one.values):,} become "
            "dead letters"
        )
        return
    if chosen.type == "double" and _MONEY_NAME.search(one.name):
        yield "decide: a double is not exact; for money use e.g. decimal(18,2)"
    if chosen.type.startswith("decimal") and all(isinstance(v, _NumberText) for v in one.values):
        yield "numbers that a long cannot hold"
    elif chosen.type.startswith("decimal"):
        yield "numbers, some as strings"
    if chosen.type == "timestamp":
        yield "decide: a time without an offset; a timestamptz needs one in the text"
    rule = _epoch_rule(one.values) if chosen.type == "long" else None
    if rule in ("epoch_ms", "epoch_us"):
        yield f'decide: if it is a time, "timestamptz", parse="{rule}"'


def _is_time_name(name: str) -> bool:
    """Return True if the last word of a name, apart from a unit, is one of times: createdAt, event_time_ms."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1] in _UNIT_WORDS:
        words.pop()
    return bool(words) and words[-1] in _TIME_WORDS


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "booleans"
    if isinstance(value, _NumberText):
        return "numbers"
    if isinstance(value, str):
        return "strings"
    return "objects" if isinstance(value, dict) else "arrays"


def safe_name(name: str, taken: Iterable[str]) -> str:
    """Return an allowed column name for a field: its own name if possible. `taken`: names in lower case."""
    used = set(taken)
    base = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:120] or "field"
    if base[0].isdigit():
        base = f"f_{base}"
    try:
        check_column_name(base)
    except ValueError:
        base = f"f_{base}"
    found, number = base, 2
    while found.lower() in used:
        found, number = f"{base}_{number}", number + 1
    return found
