"""The SQL statements of a PostgresOutput. Names are always quoted, values are always sent as parameters.

Three side tables in the schema `tallystick`, and two temporary tables of the session:

    tallystick.outputs          one row per output: its owner, table and key, its epoch, its number of intervals
    tallystick.progress         one row per output and interval: the plan that the table holds, and its number of rows
    tallystick.history_<16>     one row per interval and key: the row of the interval, even if a later one hides it
    pg_temp.tallystick_stage    the rows of one plan, unchanged
    pg_temp.tallystick_touched  the keys that a publication may change: those of the plan, and those that the interval had

The table is computed from the history: for each key, the row of the latest interval. Each publication computes this
for every key that it touches. So the result does not depend on the order of publications, or on publishers that died.
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
# Held while the side tables are created: CREATE ... IF NOT EXISTS alone can lose a race (23505 in pg_namespace, pg_type).
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
# PostgreSQL requires the rights of CREATE ... IF NOT EXISTS even if there is nothing to create.
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
RECORD_PROGRESS = sql.SQL(
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
    """Return the statement that drops a temporary table of the session."""
    return sql.SQL("DROP TABLE IF EXISTS {}").format(table)


def analyze(table: sql.Identifier) -> sql.Composed:
    """Return the ANALYZE of a temporary table; before it runs, the planner has no statistics of the table."""
    return sql.SQL("ANALYZE {}").format(table)


def names(columns: Iterable[str], of: str | None = None) -> sql.Composed:
    """Return columns as a list: `a, b`, or `t.a, t.b`."""
    return sql.SQL(", ").join(name(c, of) for c in columns)


def name(column: str, of: str | None = None) -> sql.Identifier:
    """Return one column, with a table's alias if `of` is given."""
    return sql.Identifier(column) if of is None else sql.Identifier(of, column)


def same(columns: Iterable[str], one: str, other: str) -> sql.Composed:
    """Return the condition that two rows have the same key."""
    return sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(name(c, one), name(c, other)) for c in columns
    )


def differs(columns: Sequence[str], one: str, other: str) -> sql.Composed:
    """Return the condition that two rows differ in any byte.

    `1.0` differs from `1.00`, although `=` is true for them.
    """
    return sql.SQL("ROW({})::record OPERATOR(pg_catalog.*<>) ROW({})::record").format(
        names(columns, one), names(columns, other)
    )


def assigned(columns: Iterable[str]) -> sql.Composed:
    """Return the SET list of DO UPDATE: each column gets the value that was to be inserted."""
    return sql.SQL(", ").join(sql.SQL("{} = excluded.{}").format(name(c), name(c)) for c in columns)


# ---------------------------------------------------------------- the stage


def create_stage(
    target: sql.Identifier, columns: Sequence[str], limited: Iterable[str]
) -> sql.Composed:
    """Return the statement that creates the session's table for a plan's rows, with the types of the target.

    `limited` are the columns with a maximum length. They are staged as text, because varchar(n) silently drops spaces
    beyond n.
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
    """Return the COPY of rows into the stage, each with its number."""
    return sql.SQL("COPY {} ({}) FROM STDIN").format(STAGE, names([*columns, ROW]))


def null_in(column: str) -> sql.Composed:
    """Return the query for the first row without a value in a column, and the number of such rows."""
    return sql.SQL("SELECT min({}), count(*) FROM {} WHERE {} IS NULL").format(
        name(ROW), STAGE, name(column)
    )


def too_long(column: str, length_max: int) -> sql.Composed:
    """Return the query for the first row whose text is longer than `length_max`, and the length of the text."""
    return sql.SQL(
        "SELECT {row}, char_length({c}) FROM {stage} WHERE char_length({c}) > {n} ORDER BY {row} LIMIT 1"
    ).format(row=name(ROW), c=name(column), stage=STAGE, n=sql.Literal(length_max))


def doubled(key: Sequence[str]) -> sql.Composed:
    """Return the query for the first key that several rows have.

    The result is the values of the key, its number of rows, and the number of such keys.
    """
    return sql.SQL(
        "SELECT {key}, count(*), count(*) OVER () FROM {stage} GROUP BY {key} HAVING count(*) > 1"
        " ORDER BY min({row}) LIMIT 1"
    ).format(key=names(key), stage=STAGE, row=name(ROW))


# ---------------------------------------------------------------- the publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements of one publication.

    `managed` are the columns that the output writes, `staged` those that this plan has.
    """

    target: sql.Identifier
    history: sql.Identifier
    key: tuple[str, ...]
    managed: tuple[str, ...]
    staged: frozenset[str]

    def store_keys(self) -> sql.Composed:
        """Return the statement that stores the keys that may change, until the transaction ends.

        Parameter: %(start)s.
        """
        return sql.SQL(
            "CREATE TEMPORARY TABLE tallystick_touched ON COMMIT DROP AS"
            " SELECT {key} FROM {history} WHERE {start} = %(start)s UNION SELECT {key} FROM {stage}"
        ).format(key=names(self.key), history=self.history, start=name(START), stage=STAGE)

    def count_before(self) -> sql.Composed:
        """Return the query for the number of rows that the interval has in the history. Parameter: %(start)s."""
        return sql.SQL("SELECT count(*) FROM {} WHERE {} = %(start)s").format(
            self.history, name(START)
        )

    def delete_history(self) -> sql.Composed:
        """Return the statement that deletes from the history the keys that the interval no longer has.

        Parameter: %(start)s.
        """
        return sql.SQL(
            "DELETE FROM {history} h WHERE h.{start} = %(start)s"
            " AND NOT EXISTS (SELECT FROM {stage} s WHERE {same})"
        ).format(
            history=self.history,
            start=name(START),
            stage=STAGE,
            same=same(self.key, "s", "h"),
        )

    def insert_history(self) -> sql.Composed:
        """Return the statement that writes the rows of the interval to the history. Parameters: %(start)s, %(end)s.

        If the plan lacks a column, the column is null.
        """
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

    def delete_rows(self) -> sql.Composed:
        """Return the statement that deletes from the target the touched keys that no interval has any more."""
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

    def upsert_rows(self) -> sql.Composed:
        """Return the statement that writes the touched keys to the target.

        For each key, it writes the row of the latest interval that has the key.
        """
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
    """Return the statement that creates a table with the types of the target's columns and the interval of each row."""
    return sql.SQL(
        "CREATE TABLE {} AS SELECT NULL::timestamptz AS {}, NULL::timestamptz AS {}, {} FROM {} WITH NO DATA"
    ).format(history, name(START), name(END), names(columns), target)


def key_of_history(history: sql.Identifier, key: Sequence[str]) -> sql.Composed:
    """Return the statement that adds the primary key, with the key columns first.

    With this order, the latest interval of a key is found by one index lookup.
    """
    return sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({}, {})").format(
        history, names(key), name(START)
    )


def index_of_history(history: sql.Identifier) -> sql.Composed:
    """Return the statement that adds the index by interval.

    With it, the rows that a replacement replaces are found.
    """
    return sql.SQL("CREATE INDEX ON {} ({})").format(history, name(START))


def any_row(history: sql.Identifier) -> sql.Composed:
    """Return the query for one row, if there is any."""
    return sql.SQL("SELECT true FROM {} LIMIT 1").format(history)


def add_to_history(history: sql.Identifier, column: str, type_: str) -> sql.Composed:
    """Return the statement that adds a column that the target got since. `type_` is the database's own spelling."""
    return sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(
        history,
        name(column),
        sql.SQL(type_),  # format_type() quoted it; a type cannot be a parameter
    )
