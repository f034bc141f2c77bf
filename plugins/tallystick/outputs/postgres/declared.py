"""The declaration of a PostgreSQL table that holds each committed row once.

DAG files import this module, so it has light imports only; `table` does the work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.columns import check_column_name
from tallystick.pipeline import Replaced
from tallystick.pipeline.columns import refuse, several

# Names of at most 63 bytes that PostgreSQL accepts. They are always quoted, so upper case stays upper case.
_INTO = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}\.[A-Za-z_][A-Za-z0-9_$]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOutput:
    """The declaration of a table that holds, for each key, the row of the latest interval that has the key.

    `into` is `schema.table`, written as in the database; tallystick never creates the table. `key`: the columns that
    identify a row; the table has a unique constraint on them. If one of them is null, or if a key occurs twice in one
    interval, the interval is refused. `postgres` names the connection. `replaced`: with `compensate`, rows that a
    replacement changes are changed or removed; with `refuse`, an interval that was published cannot be replaced.
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
                f"output {self.name}: expected into='schema.table', found {self.into!r}.",
                "write 'schema.table', each 1 to 63 of a-z, A-Z, 0-9, _ and $.",
            )
        keys.check_name(self.postgres, "connection")
        key = several(self.key, f"the key of output {self.name}")
        if not key or len(set(key)) != len(key):
            raise refuse(
                f"output {self.name}: expected a key of at least one column, each once, found "
                + (f"({', '.join(map(str, key))})." if key else "none."),
                "name each column of the table's unique constraint once.",
            )
        for column in key:
            try:
                check_column_name(column)
            except ValueError as error:
                raise refuse(f"output {self.name}: key: {error}.", "correct the key.") from error
        object.__setattr__(self, "key", key)
        if self.replaced not in ("compensate", "refuse"):
            raise refuse(
                f"output {self.name}: unsupported replaced={self.replaced!r} for a table.",
                "use compensate or refuse.",
            )

    @property
    def target(self) -> str:
        """The target that the output's name refers to."""
        return f"postgres:{self.postgres}/{self.into}"

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """The schema and the table in `into`."""
        schema, _, table = self.into.partition(".")
        return schema, table
