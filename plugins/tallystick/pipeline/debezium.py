"""Change events of Debezium, as a user declares them: the columns of the table's rows, and what is read of the event.

The fields of an event are those of io.debezium.data.Envelope (Debezium 3): `before`, `after`, `op`, `source`,
`transaction`, `ts_ms`, `ts_us`, `ts_ns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tallystick.format.types import decimal_size
from tallystick.pipeline.columns import Column, decoded, refuse, several
from tallystick.pipeline.formats import Format, check_tombstones
from tallystick.pipeline.registry_options import Misfits, checked_subjects, stored_options

DEBEZIUM = "debezium"
TOMBSTONE_OP = "tombstone"
"""The value of the column `op` in a row of a tombstone, which has no event."""
_WHAT = "format debezium"


@dataclass(frozen=True, slots=True)
class Debezium:
    """Change events of a relational connector of Debezium: one row per event, with the state of the row that changed.

    `columns` are read from `after`, or from `before` if the row was deleted; by default those of the pipeline's first
    table without the columns below. `op`: the name of a column with the operation: `c`, `r`, `u`, `d`, `t`, `tombstone`.
    `ts`: the name of a timestamptz column with the time at which Debezium processed the event; None: no column.
    `before`: the name of a struct column with the state before the change; None: no column. `event`: other columns, whose
    paths begin at the event: `Column("lsn", "long", required=False, source="source.lsn")`.
    `format`: `json`, with the schema of Kafka Connect's JsonConverter around each event or without, or `avro`. None: avro
    with a registry, json without. `decimals`: how decimal columns are in JSON: `base64` (Debezium's default,
    `decimal.handling.mode=precise`), or `number`, also in a string.
    `registry`, `subjects`, `misfits`: as for `Avro` and `Json`.
    `tombstones`: a null value is a dead letter (`dead`), or a row with the operation `tombstone` (`keep`). `truncates`:
    the event of a TRUNCATE is a dead letter, or a row with the operation `t`. The columns of both rows are null.
    """

    columns: Sequence[Column] | None = None
    op: str = "op"
    ts: str | None = "ts"
    before: str | None = None
    event: Sequence[Column] = ()
    format: Literal["json", "avro"] | None = None
    decimals: Literal["base64", "number"] | None = None
    registry: str | None = None
    subjects: Sequence[str] = ()
    misfits: Misfits = "dead"
    tombstones: Literal["dead", "keep"] = "dead"
    truncates: Literal["dead", "keep"] = "dead"

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "event", several(self.event, f"{_WHAT}: event"))
        if self.event:
            decoded(self.event, f"{_WHAT}: event")
        subjects = checked_subjects(_WHAT, self.registry, self.subjects, self.misfits)
        set_(self, "subjects", subjects)
        if self.format is None:
            set_(self, "format", "json" if self.registry is None else "avro")
        self._check_words()
        if self.columns is not None:
            set_(self, "columns", decoded(self.columns, _WHAT))
            self._check_columns(self.columns)
        decoded(self.all_columns or self.beyond_rows, _WHAT)

    def _check_words(self) -> None:
        for name in ("op", "ts", "before"):
            given = getattr(self, name)
            if not isinstance(given, str) and (given is not None or name == "op"):
                raise refuse(
                    f"{_WHAT}: {name}: expected the name of a column, found {given!r}.",
                    f'write {name}="{name}", or omit it.',
                )
        for name, words in (
            ("format", ("json", "avro")),
            ("decimals", (None, "base64", "number")),
            ("truncates", ("dead", "keep")),
        ):
            if getattr(self, name) not in words:
                raise refuse(
                    f"{_WHAT}: {name}: expected one of {words}, found {getattr(self, name)!r}.",
                    "use one of them.",
                )
        check_tombstones(self.tombstones)
        if self.format == "avro" and self.registry is None:
            raise refuse(
                f"{_WHAT}: expected a registry with format='avro', found none.",
                'add registry="default", the name of the connection that has the schemas.',
            )
        if self.format == "avro" and self.decimals is not None:
            raise refuse(
                f"{_WHAT}: expected decimals only with JSON, found decimals={self.decimals!r} with Avro.",
                "remove it: the schema states how decimals are written.",
            )

    def _check_columns(self, columns: Sequence[Column]) -> None:
        """Refuse columns that the rows of tombstones and truncates cannot have, and decimals that could be misread."""
        for argument, given, others in (
            ("tombstones", self.tombstones, self.event),
            ("truncates", self.truncates, ()),
        ):
            required = [c.name for c in (*columns, *others) if c.required]
            if given == "keep" and required:
                raise refuse(
                    f"{_WHAT}: {argument}='keep': expected only columns with required=False, found {required[0]!r} "
                    "with required=True.",
                    f"declare it required=False, or use {argument}='dead'. The table's key can be read from the record's "
                    "key: Topic(key=...).",
                )
        if self.format == "avro":
            return
        if self.decimals is None and (found := next(_with_decimals(columns), None)):
            raise refuse(
                f"{_WHAT}: column {found.name!r} of type {found.text}: expected decimals='base64' or 'number', found "
                "none.",
                "write decimals='base64' if the connector has decimal.handling.mode=precise, which is its default; "
                "decimals='number' for string or double. A base64 text can have only digits, so both could be read.",
            )
        nested = (c for c in columns if not decimal_size(c.type))
        if self.decimals == "base64" and (found := next(_with_decimals(nested), None)):
            raise refuse(
                f"{_WHAT}: column {found.name!r} of type {found.text}: expected no decimal inside of a nested column "
                "with decimals='base64', found one.",
                "declare binary there, and convert it in the job; or set decimal.handling.mode=string in the connector.",
            )

    @property
    def beyond_rows(self) -> tuple[Column, ...]:
        """The columns of the event, without those of the row before and after the change."""
        ts = (
            ()
            if self.ts is None
            else (Column(self.ts, "timestamptz", required=False, source="ts_ms", parse="epoch_ms"),)
        )
        return (Column(self.op, "string", source="op"), *ts, *self.event)

    @property
    def all_columns(self) -> tuple[Column, ...] | None:
        """All columns in the order in which they are decoded; None if those of the rows are not declared."""
        if self.columns is None:
            return None
        before = () if self.before is None else (self._before(self.before, self.columns),)
        return (*self.columns, *self.beyond_rows, *before)

    @staticmethod
    def _before(name: str, columns: Sequence[Column]) -> Column:
        fields = [replace(column, required=False) for column in columns]
        return Column(name, "struct", required=False, source="before", fields=fields)

    def planned(self, columns: Sequence[Column]) -> Format:
        """Return the format in the form that a plan contains; `columns` are those if it declares none.

        Raises InvalidPipeline if all of them are columns of the event.
        """
        if self.columns is None:
            names = {c.name.lower() for c in self.beyond_rows} | {(self.before or "").lower()}
            rows = [c for c in columns if c.name.lower() not in names]
            return replace(self, columns=decoded(rows, _WHAT)).planned(())
        options: dict[str, Any] = {
            "op": self.op,
            "ts": self.ts,
            "before": self.before,
            "event": [column.name for column in self.event],
            "format": self.format,
            "decimals": self.decimals,
            "tombstones": self.tombstones,
            "truncates": self.truncates,
        }
        options |= stored_options(self.registry, self.subjects, self.misfits)
        return Format(DEBEZIUM, self.all_columns or (), options)

    @classmethod
    def of(cls, declared: Format) -> Debezium:
        """Return a `debezium` format with its options checked; raises InvalidPipeline."""
        options = dict(declared.options)
        known = {"op", "ts", "before", "event", "format", "decimals", "tombstones", "truncates"}
        known |= {"registry", "subjects", "misfits"}
        if unknown := sorted(options.keys() - known):
            raise refuse(
                f"{_WHAT}: expected no other options, found {unknown[0]!r}.",
                "remove it, or use Debezium(...).",
            )
        event = tuple(options.pop("event", ()))
        others = {options.get("op", "op"), options.get("ts", "ts"), options.get("before"), *event}
        found = cls(
            [column for column in declared.columns if column.name not in others],
            event=[column for column in declared.columns if column.name in event],
            **options,
        )
        if found.all_columns != declared.columns or len(found.event) != len(event):
            raise refuse(
                f"{_WHAT}: expected the columns of the rows, of the event and `before` in this order, found others.",
                "use Debezium(...).",
            )
        return found


def _with_decimals(columns: Iterable[Column]) -> Iterator[Column]:
    """Yield each column that is a decimal, or has one at any depth."""
    for column in columns:
        if decimal_size(column.type) or next(_with_decimals(column.fields), None) is not None:
            yield column
