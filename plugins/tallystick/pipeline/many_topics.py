"""Topics by a pattern: which topics a plan reads is decided when it is made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallystick.errors import listed
from tallystick.format import keys
from tallystick.pipeline.columns import refuse, several
from tallystick.pipeline.tables import DEAD_LETTERS, Table, partition_rule
from tallystick.pipeline.topics import DeclaredFormat, Topic, rows_form

_FIELD = re.compile(r"\{(\w+)\}")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_-]")
INTERNAL = ("__", "_schemas", "_confluent")
"""How names of topics begin that no pattern matches: those of Kafka, of a schema registry, of Confluent's platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    r"""All topics whose names match a pattern, each with a table of its own.

    `pattern`: a regular expression for the whole name. Topics of Kafka and of a schema registry are left out. A plan
    reads the topics that match when it is made, and those of the ledger; a new one begins at the start of its log, or at
    `begin`.
    `table`: the name of a topic's table; `{topic}` is the topic's name, `{part}` the group `(?P<part>...)` of the
    pattern. Characters that a table's name cannot have become `_`. A new topic is left out, with a warning, if it can
    have no table of that name.
    `decode`, `key` and `headers`: as for Topic, the same for all topics; `decode` declares its columns. With
    Avro(registry=..., schema="follow") each topic has the columns of its own schemas. With a registry, a new topic is
    left out, with a warning, until all of its subjects exist.
    `partition_by`: that of each table.
    """

    pattern: str
    decode: DeclaredFormat
    table: str = "{topic}"
    key: DeclaredFormat | None = None
    headers: str | None = None
    begin: datetime | None = None
    partition_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern).groupindex
        except (re.error, TypeError) as error:
            raise refuse(
                f"topics: pattern: expected a regular expression, found {self.pattern!r} ({error}).",
                r'write e.g. r"shop\.public\..*".',
            ) from error
        if unknown := set(_FIELD.findall(self.table)) - {"topic", *groups}:
            raise refuse(
                f"topics {self.pattern!r}: table: expected {listed(sorted({'topic', *groups}))} in braces, found "
                f"{sorted(unknown)[0]!r}.",
                'use table="{topic}", or name a group in the pattern: (?P<name>...).',
            )
        rules = several(self.partition_by, "topics: partition_by")
        object.__setattr__(self, "partition_by", tuple(str(partition_rule(r)) for r in rules))
        # The format and the names of its columns are checked once, as those of any topic that matches.
        if not self.topic("any").has_columns:
            raise refuse(
                f"topics {self.pattern!r}: decode: expected the columns of the values, found none.",
                "declare them, the same for all topics: decode=Json([Column(...), ...]); or, with a registry, "
                'schema="follow".',
            )

    def topic(self, name: str) -> Topic:
        """Return one of the topics."""
        return Topic(name, decode=self.decode, key=self.key, headers=self.headers, begin=self.begin)

    def matches(self, name: str) -> bool:
        """Return True if a topic is one of them."""
        return not name.startswith(INTERNAL) and re.fullmatch(self.pattern, name) is not None

    def table_of(self, name: str) -> str:
        """Return the name of a topic's table; raises InvalidPipeline if no table can have it."""
        found = re.fullmatch(self.pattern, name)
        parts = {"topic": name, **(found.groupdict() if found else {})}
        filled = _FIELD.sub(lambda field: parts[field[1]] or "", self.table)
        table = _NOT_IN_NAMES.sub("_", filled.lower()).lstrip("_-")
        return keys.check_name(table, "table")

    def table_for(self, name: str) -> Table:
        """Return a topic's table; raises InvalidPipeline if no table can have its name."""
        table = self.table_of(name)
        if table == DEAD_LETTERS:
            raise refuse(
                f"topics {self.pattern!r}: expected a table per topic, found table {table!r} for {name!r} and for "
                "tallystick.",
                "use another `table`, or a pattern that leaves the topic out.",
            )
        return Table(table, topic=name, partition_by=self.partition_by)

    def to_json(self) -> dict[str, Any]:
        """Return all that determines the rows, for the fingerprint."""
        one = rows_form(self.topic("any"), ())
        return {
            **{what: one[what] for what in ("decode", "key", "headers")},
            "pattern": self.pattern,
            "table": self.table,
            "partition_by": list(self.partition_by),
        }
