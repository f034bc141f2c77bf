"""Declares a PostgreSQL table that holds each committed row once. Light: DAG files import it; `postgres_table` works."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.columns import check_column_name
from tallystick.pipeline import Replaced
from tallystick.pipeline.columns import refuse, several

# What PostgreSQL takes for a name of at most 63 bytes; quoted wherever it is used, so upper case stays upper case.
_INTO = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}\.[A-Za-z_][A-Za-z0-9_$]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOutput:
    """Declares a table that holds, for each key, the row of the latest interval that has it.

    `into` is `schema.table`, spelt as the database has it; it is never created. `key`: the columns that tell rows apart,
    of which it has a unique constraint; a null in one of them, or a key twice in one interval, is refused. `postgres`
    names the connection. `replaced`: `compensate` changes and removes what a replacement changes, `refuse` keeps an
    interval that was sent from being replaced.
    """

    name: str
    table: str
    into: str
    key: Sequence[str]
    postgres: str = "default"
    replaced: Replaced = "compensate"

    def __post_init__(self) -> None:
        if not isinstance(self.into, str) or not _INTO.fullmatch(self.into):
            raise refuse(
                f"output {self.name}: into={self.into!r} is no schema and table.",
                "write 'schema.table', each 1 to 63 of a-z, A-Z, 0-9, _ and $.",
            )
        keys.check_name(self.postgres, "connection")
        key = several(self.key, f"the key of output {self.name}")
        if not key or len(set(key)) != len(key):
            raise refuse(
                f"output {self.name}: its key ({', '.join(map(str, key))}) names "
                + ("a column twice." if key else "no column."),
                "name each column of the table's unique constraint once.",
            )
        for column in key:
            try:
                check_column_name(column)
            except ValueError as error:
                raise refuse(f"output {self.name}: key: {error}.", "mend the key.") from error
        object.__setattr__(self, "key", key)
        if self.replaced not in ("compensate", "refuse"):
            raise refuse(
                f"output {self.name}: replaced={self.replaced!r} is not what a table can do.",
                "use compensate or refuse.",
            )

    @property
    def target(self) -> str:
        """What the name stands for."""
        return f"postgres:{self.postgres}/{self.into}"

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """The two names in `into`."""
        schema, _, table = self.into.partition(".")
        return schema, table
