"""The statements of a PostgresOutput. Names are always quoted, values always sent beside the text.

Three side tables in the schema `tallystick`, and two temporary ones of the session:

    tallystick.outputs          one row per output: whose it is, its table and key, who has it (epoch), how many intervals
    tallystick.progress         one row per output and interval: which plan the table holds, how many rows it has
    tallystick.history_<16>     one row per interval and key: what an interval has of it, also where a later one hides it
    pg_temp.tallystick_stage    the rows of one plan, as they came
    pg_temp.tallystick_touched  the keys that a publication may change: those of the plan, and those that the interval had

The table is a function of the history: of each key, the row of the latest interval. That is computed anew for every key
that was touched, so neither the order of publications nor who died between them leaves a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import sql

START, END, ROW = "tallystick.start", "tallystick.end", "tallystick.row"
SCHEMA = "tallystick"
STAGE = sql.Identifier("pg_temp", "tallystick_stage")
TOUCHED = sql.Identifier("pg_temp", "tallystick_touched")
OUTPUTS = sql.Identifier(SCHEMA, "outputs")
PROGRESS = sql.Identifier(SCHEMA, "progress")
# Held while the side tables are made: CREATE ... IF NOT EXISTS alone loses races (23505 in pg_namespace, pg_type).
CREATE_LOCK = sql.SQL("SELECT pg_advisory_xact_lock(hashtext('tallystick'))")

CREATE_SCHEMA = sql.SQL("CREATE SCHEMA IF NOT EXISTS tallystick")
CREATE_OUTPUTS = sql.SQL(
    """
    CREATE TABLE IF NOT EXISTS tallystick.outputs (
        output text PRIMARY KEY, lake text NOT NULL, pipeline text NOT NULL, name text NOT NULL,
        target text NOT NULL UNIQUE, key text[] NOT NULL, history text NOT NULL,
        epoch bigint NOT NULL DEFAULT 0, intervals bigint NOT NULL DEFAULT 0)
    """
)
CREATE_PROGRESS = sql.SQL(
    """
    CREATE TABLE IF NOT EXISTS tallystick.progress (
        output text NOT NULL REFERENCES tallystick.outputs, "start" timestamptz NOT NULL, "end" timestamptz NOT NULL,
        generation bigint NOT NULL, plan text NOT NULL, rows bigint NOT NULL, PRIMARY KEY (output, "start"))
    """
)
# The rights of CREATE ... IF NOT EXISTS are asked for even where there is nothing to create.
THERE = sql.SQL(
    """
    SELECT to_regnamespace('tallystick') IS NOT NULL, to_regclass('tallystick.outputs') IS NOT NULL,
        to_regclass('tallystick.progress') IS NOT NULL
    """
)

REGISTER = sql.SQL(
    """
    INSERT INTO tallystick.outputs (output, lake, pipeline, name, target, key, history)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
    """
)
OWNER = sql.SQL("SELECT lake, pipeline, name FROM tallystick.outputs WHERE target = %s")
TAKE = sql.SQL(
    "UPDATE tallystick.outputs SET epoch = epoch + 1 WHERE output = %s RETURNING epoch, target, key"
)
LOCK = sql.SQL("SELECT epoch, intervals FROM tallystick.outputs WHERE output = %s FOR UPDATE")
READ_PROGRESS = sql.SQL(
    """
    SELECT "end", generation, plan, rows FROM tallystick.progress WHERE output = %s AND "start" = %s
    """
)
COUNT_PROGRESS = sql.SQL("SELECT count(*) FROM tallystick.progress WHERE output = %s")
NOTE = sql.SQL(
    """
    INSERT INTO tallystick.progress (output, "start", "end", generation, plan, rows)
    VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (output, "start") DO UPDATE
    SET "end" = excluded."end", generation = excluded.generation, plan = excluded.plan, rows = excluded.rows
    """
)
COUNT_INTERVALS = sql.SQL(
    """
    UPDATE tallystick.outputs SET intervals = (SELECT count(*) FROM tallystick.progress p WHERE p.output = %s)
    WHERE output = %s
    """
)
ALL_NOW = sql.SQL("SET CONSTRAINTS ALL IMMEDIATE")


def drop(table: sql.Identifier) -> sql.Composed:
    """A temporary table of the session goes."""
    return sql.SQL("DROP TABLE IF EXISTS {}").format(table)


def analyze(table: sql.Identifier) -> sql.Composed:
    """The planner knows nothing of a temporary table before."""
    return sql.SQL("ANALYZE {}").format(table)


def names(columns: Iterable[str], of: str | None = None) -> sql.Composed:
    """Columns as a list: `a, b`, or `t.a, t.b`."""
    return sql.SQL(", ").join(name(c, of) for c in columns)


def name(column: str, of: str | None = None) -> sql.Identifier:
    """One column, of a table's alias where that is said."""
    return sql.Identifier(column) if of is None else sql.Identifier(of, column)


def same(columns: Iterable[str], one: str, other: str) -> sql.Composed:
    """The condition that two rows have one key."""
    return sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(name(c, one), name(c, other)) for c in columns
    )


def differs(columns: Sequence[str], one: str, other: str) -> sql.Composed:
    """The condition that two rows are not byte for byte the same: `1.0` is no `1.00`, whatever = says of them."""
    return sql.SQL("ROW({})::record OPERATOR(pg_catalog.*<>) ROW({})::record").format(
        names(columns, one), names(columns, other)
    )


def assigned(columns: Iterable[str]) -> sql.Composed:
    """What DO UPDATE sets: each column to what was to be inserted."""
    return sql.SQL(", ").join(sql.SQL("{} = excluded.{}").format(name(c), name(c)) for c in columns)


# ---------------------------------------------------------------- the stage


def create_stage(
    target: sql.Identifier, columns: Sequence[str], limited: Iterable[str]
) -> sql.Composed:
    """The session's table for a plan's rows, typed as the target; `limited` are texts with a longest length.

    Those are staged as they are: a varchar(n) drops spaces beyond n without a word.
    """
    cut = set(limited)
    listed = [
        (sql.SQL("{0}::text AS {0}") if c in cut else sql.SQL("{}")).format(name(c))
        for c in columns
    ]
    return sql.SQL(
        "CREATE TEMPORARY TABLE tallystick_stage AS SELECT {}, 0::bigint AS {} FROM {} WITH NO DATA"
    ).format(sql.SQL(", ").join(listed), name(ROW), target)


def copy_stage(columns: Sequence[str]) -> sql.Composed:
    """Rows into the stage, each with its number."""
    return sql.SQL("COPY {} ({}) FROM STDIN").format(STAGE, names([*columns, ROW]))


def null_in(column: str) -> sql.Composed:
    """The first row without a value in a column, and how many there are."""
    return sql.SQL("SELECT min({}), count(*) FROM {} WHERE {} IS NULL").format(
        name(ROW), STAGE, name(column)
    )


def too_long(column: str, length_max: int) -> sql.Composed:
    """The first row whose text is longer, and how long that is."""
    return sql.SQL(
        "SELECT {row}, char_length({c}) FROM {stage} WHERE char_length({c}) > {n} ORDER BY {row} LIMIT 1"
    ).format(row=name(ROW), c=name(column), stage=STAGE, n=sql.Literal(length_max))


def doubled(key: Sequence[str]) -> sql.Composed:
    """The first key that several rows have: its values, how often, and how many such keys there are."""
    return sql.SQL(
        "SELECT {key}, count(*), count(*) OVER () FROM {stage} GROUP BY {key} HAVING count(*) > 1"
        " ORDER BY min({row}) LIMIT 1"
    ).format(key=names(key), stage=STAGE, row=name(ROW))


# ---------------------------------------------------------------- the publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """What one publication does. `managed`: the columns that the output writes; `staged`: those that this plan has."""

    target: sql.Identifier
    history: sql.Identifier
    key: tuple[str, ...]
    managed: tuple[str, ...]
    staged: frozenset[str]

    def touch(self) -> sql.Composed:
        """Note the keys that may change: %(start)s. They go with the transaction."""
        return sql.SQL(
            "CREATE TEMPORARY TABLE tallystick_touched ON COMMIT DROP AS"
            " SELECT {key} FROM {history} WHERE {start} = %(start)s UNION SELECT {key} FROM {stage}"
        ).format(key=names(self.key), history=self.history, start=name(START), stage=STAGE)

    def count_before(self) -> sql.Composed:
        """How many rows the interval has in the history: %(start)s."""
        return sql.SQL("SELECT count(*) FROM {} WHERE {} = %(start)s").format(
            self.history, name(START)
        )

    def forget(self) -> sql.Composed:
        """Take from the history what the interval has no more: %(start)s."""
        return sql.SQL(
            "DELETE FROM {history} h WHERE h.{start} = %(start)s"
            " AND NOT EXISTS (SELECT FROM {stage} s WHERE {same})"
        ).format(
            history=self.history,
            start=name(START),
            stage=STAGE,
            same=same(self.key, "s", "h"),
        )

    def keep(self) -> sql.Composed:
        """Put into the history what the interval has: %(start)s, %(end)s. A column that the plan lacks is null."""
        both = (START, END)
        values = sql.SQL(", ").join(
            name(c, "s") if c in self.staged else sql.SQL("NULL") for c in self.managed
        )
        return sql.SQL(
            "INSERT INTO {history} AS t ({interval}, {managed}) SELECT %(start)s, %(end)s, {values} FROM {stage} s"
            " ON CONFLICT ({key}, {start}) DO UPDATE SET {set} WHERE {differs}"
        ).format(
            history=self.history,
            interval=names(both),
            managed=names(self.managed),
            values=values,
            stage=STAGE,
            key=names(self.key),
            start=name(START),
            set=assigned([END, *self.managed]),
            differs=differs([END, *self.managed], "t", "excluded"),
        )

    def remove(self) -> sql.Composed:
        """Remove from the target the keys that were touched and that no interval has any more."""
        return sql.SQL(
            "DELETE FROM {target} t USING {touched} k WHERE {is_key}"
            " AND NOT EXISTS (SELECT FROM {history} h WHERE {has})"
        ).format(
            target=self.target,
            touched=TOUCHED,
            is_key=same(self.key, "t", "k"),
            history=self.history,
            has=same(self.key, "h", "k"),
        )

    def reveal(self) -> sql.Composed:
        """Let the target hold, of each key that was touched, the row of the latest interval that has it."""
        return sql.SQL(
            "INSERT INTO {target} AS t ({managed}) SELECT {latest} FROM {touched} k CROSS JOIN LATERAL"
            " (SELECT {of_history} FROM {history} h WHERE {has} ORDER BY h.{start} DESC LIMIT 1) l"
            " ON CONFLICT ({key}) DO UPDATE SET {set} WHERE {differs}"
        ).format(
            target=self.target,
            managed=names(self.managed),
            latest=names(self.managed, "l"),
            touched=TOUCHED,
            of_history=names(self.managed, "h"),
            history=self.history,
            has=same(self.key, "h", "k"),
            start=name(START),
            key=names(self.key),
            set=assigned(self.managed),
            differs=differs(self.managed, "t", "excluded"),
        )


# ---------------------------------------------------------------- the history


def create_history(
    history: sql.Identifier, target: sql.Identifier, columns: Sequence[str]
) -> sql.Composed:
    """A table typed as the target's columns, with the interval beside them."""
    return sql.SQL(
        "CREATE TABLE {} AS SELECT NULL::timestamptz AS {}, NULL::timestamptz AS {}, {} FROM {} WITH NO DATA"
    ).format(history, name(START), name(END), names(columns), target)


def key_of_history(history: sql.Identifier, key: Sequence[str]) -> sql.Composed:
    """By key first: the latest interval of a key is one look into the index."""
    return sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({}, {})").format(
        history, names(key), name(START)
    )


def index_of_history(history: sql.Identifier) -> sql.Composed:
    """By interval: what a replacement replaces."""
    return sql.SQL("CREATE INDEX ON {} ({})").format(history, name(START))


def any_row(history: sql.Identifier) -> sql.Composed:
    """A row where there is one."""
    return sql.SQL("SELECT true FROM {} LIMIT 1").format(history)


def add_to_history(history: sql.Identifier, column: str, type_: str) -> sql.Composed:
    """A column that the target has got since; `type_` is the database's own spelling."""
    return sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(
        history,
        name(column),
        sql.SQL(type_),  # format_type() quoted it; a type cannot be a parameter
    )
