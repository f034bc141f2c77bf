"""Rows that a table cannot take are refused before the ledger records a start: with output, interval and reason."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.postgres_tables import Database
from tallystick.errors import OutputRefused, OutputUnavailable, SettingsError, TallystickError
from tallystick.outputs.port import Publication, Scope
from tallystick_devstack.process import free_port
from unit.outputs.publications import (
    IN_THE_YEAR_10000,
    SCOPE,
    TableRows,
    in_the_year_10000,
    publication,
)

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
PREFIX = "output feed of [2013-01-01T00:00:00.000Z, 2013-01-02T00:00:00.000Z), generation 1: "
TABLE = "table public.events of connection default"


def prepared(
    database: Database, pub: Publication, error: type[TallystickError], **options: Any
) -> str:
    """Return the error of `prepare`: the same with and without `begin`, with nothing left in the side tables."""
    messages = set()
    for output in (database.output(**options), database.begun(**options)):
        with pytest.raises(error) as caught:
            output.prepare(pub)
        output.close()
        messages.add(caught.value.message)
    assert database.run("SELECT count(*) FROM tallystick.progress") == [(0,)]
    (message,) = messages
    return message


def of_types(rows: dict[str, pa.Array]) -> Publication:
    """Return the publication of one interval with typed columns."""
    pub = publication([])
    return Publication(
        **{f: getattr(pub, f) for f in pub.__slots__} | {"rows": TableRows(pa.table(rows))}
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"k": "a", "n": 1}, {"k": None, "n": 2}, {"k": None, "n": 3}],
            f"row 1: expected a value in its key column 'k' of {TABLE}, found null (rows with null: 2).",
        ),
        (
            [*OLD, {"k": "b", "n": 5}, {"k": "b", "n": 6}, {"k": "a", "n": 5}],
            "expected one row per key, found 2 rows with k='a' (duplicate keys: 2).",
        ),
        ([{"n": 1}], "its rows have no column 'k', which is in the key."),
        (
            [{"k": "a", "n": 1, "more": "x"}],
            f"{TABLE} has no column 'more' (string in the lake).",
        ),
        (
            [{"k": "a", "n": "1"}],
            f"column 'n' of {TABLE}: expected a type with every value of string, as in the lake, found bigint.",
        ),
        (
            [{"k": "a", "n": 1.0}],
            f"column 'n' of {TABLE}: expected a type with every value of double, as in the lake, found bigint.",
        ),
        (
            [{"k": "a\x00b", "n": 1}],
            f"{TABLE}: PostgreSQL text fields cannot contain NUL (0x00) bytes.",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    database: Database, rows: list[dict[str, Any]], message: str
) -> None:
    assert prepared(database, publication(rows, identity=("n",)), OutputRefused) == PREFIX + message
    assert database.rows() == []


def test_a_time_outside_the_range_of_python_is_refused(database: Database) -> None:
    """PostgreSQL has times up to the year 294276."""
    database.run("ALTER TABLE public.events ADD COLUMN at timestamptz")
    assert prepared(database, in_the_year_10000(), OutputRefused) == IN_THE_YEAR_10000
    assert database.rows() == []


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE public.events", f"{TABLE} does not exist."),
        (
            "ALTER TABLE public.events RENAME COLUMN k TO other",
            f"{TABLE} has no column 'k', which is in the key.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey",
            f"{TABLE} has no unique constraint on the key (k) that is not deferrable.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey, ADD UNIQUE (k, n)",
            f"{TABLE} has no unique constraint on the key (k) that is not deferrable.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey, ADD UNIQUE (k) DEFERRABLE",
            f"{TABLE} has no unique constraint on the key (k) that is not deferrable.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey; "
            "CREATE UNIQUE INDEX ON public.events (k) WHERE n > 0",
            f"{TABLE} has no unique constraint on the key (k) that is not deferrable.",
        ),
        (
            "ALTER TABLE public.events SET UNLOGGED",
            f"{TABLE} is UNLOGGED or temporary: a crash of the server would empty it.",
        ),
        (
            "ALTER TABLE public.events RENAME TO base; CREATE VIEW public.events AS SELECT * FROM public.base",
            f"{TABLE} is not a table but a view or another object.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN n TYPE integer",
            f"column 'n' of {TABLE}: expected a type with every value of long, as in the lake, found integer.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN k TYPE char(9)",
            f"column 'k' of {TABLE}: expected a type with every value of string, as in the lake, found character(9).",
        ),
        (
            "CREATE DOMAIN public.short AS text; ALTER TABLE public.events ALTER COLUMN k TYPE public.short",
            f"column 'k' of {TABLE}: expected a type with every value of string, as in the lake, found short.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN k TYPE varchar(1)",
            f"row 3, column 'k': expected character varying(1) as in {TABLE}, found 2 characters.",
        ),
        (
            "ALTER TABLE public.events ADD COLUMN more text NOT NULL",
            f"column 'more' of {TABLE} is NOT NULL, and its rows have no such column.",
        ),
        (
            "ALTER TABLE public.events DROP COLUMN n, ADD COLUMN n bigint GENERATED ALWAYS AS (1) STORED",
            f"column 'n' of {TABLE} is generated by the database.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN n SET NOT NULL",
            f"row 4: expected a value in column 'n' of {TABLE}, found null (rows with null: 1).",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    database: Database, statement: str, message: str
) -> None:
    for command in statement.split("; "):
        database.run(command)
    # A space beyond the length: PostgreSQL itself would drop it silently.
    rows = [*OLD, {"k": "d ", "n": 4}, {"k": "e", "n": None}]
    assert prepared(database, publication(rows), OutputRefused) == PREFIX + message


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.decimal128(9, 2), "numeric(9,1)"),
        (pa.decimal128(9, 2), "numeric(8,2)"),
        (pa.decimal128(9, 2), "bigint"),
        (pa.int64(), "numeric(18)"),
        (pa.int32(), "smallint"),
        (pa.float64(), "real"),
        (pa.timestamp("us"), "timestamp(3) without time zone"),
        (pa.timestamp("us"), "timestamp with time zone"),
        (pa.timestamp("us", tz="UTC"), "timestamp without time zone"),
        (pa.date32(), "text"),
        (pa.binary(), "text"),
        (pa.bool_(), "integer"),
        (pa.time64("us"), "time(3) without time zone"),
        (pa.uuid(), "text"),
        (pa.binary(2), "text"),
        (pa.list_(pa.string()), "text[]"),
        (pa.struct([("a", pa.int64())]), "json"),
    ],
    ids=str,
)
def test_column_types_that_would_change_a_value_are_refused(
    database: Database, kind: pa.DataType, column: str
) -> None:
    database.run(f"ALTER TABLE public.events ADD COLUMN v {column}")
    pub = of_types({"k": pa.array(["a"]), "v": pa.array([None], type=kind)})
    message = prepared(database, pub, OutputRefused)
    assert message.startswith(
        f"{PREFIX}column 'v' of {TABLE}: expected a type with every value of "
    )
    assert f", as in the lake, found {column}" in message or column == "numeric(18)"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "ALTER TABLE public.events ADD CHECK (n < 3)",
            'new row for relation "events" violates check constraint "events_n_check"; Failing row contains (c, 3).',
        ),
        (
            "CREATE TABLE public.known (k text PRIMARY KEY); "
            "ALTER TABLE public.events ADD FOREIGN KEY (k) REFERENCES public.known DEFERRABLE INITIALLY DEFERRED",
            'insert or update on table "events" violates foreign key constraint "events_k_fkey"; '
            'Key (k)=(a) is not present in table "known".',
        ),
        (
            "CREATE UNIQUE INDEX one_n ON public.events ((n / 100))",
            'duplicate key value violates unique constraint "one_n"; Key ((n / 100))=(0) already exists.',
        ),
    ],
)
def test_other_constraints_are_checked_by_a_rehearsal_that_is_rolled_back(
    database: Database, statement: str, message: str
) -> None:
    for command in statement.split("; "):
        database.run(command)
    output = database.begun()
    with pytest.raises(OutputRefused) as caught:
        output.prepare(publication(OLD))
    assert caught.value.message == f"{PREFIX}{TABLE}: {message}"
    assert database.rows() == []
    # Valid rows are rehearsed, too, and are not in the table before they are published.
    database.run("ALTER TABLE public.events DROP CONSTRAINT IF EXISTS events_n_check")
    database.run("ALTER TABLE public.events DROP CONSTRAINT IF EXISTS events_k_fkey")
    database.run("DROP INDEX IF EXISTS public.one_n")
    database.run("ALTER TABLE public.events ADD CHECK (n < 100)")
    output.prepare(publication(OLD))
    assert database.rows() == []
    output.publish(publication(OLD), resumed=False)
    assert database.rows() == OLD
    output.close()


def test_the_removal_of_a_referenced_row_is_refused_before_it_is_published(
    database: Database,
) -> None:
    database.publish(publication(OLD))
    database.run("CREATE TABLE public.refers (k text REFERENCES public.events)")
    database.run("INSERT INTO public.refers VALUES ('c')")
    output = database.begun()
    pub = publication(OLD[:2], plan=2, generation=2, instead_of=1, before=OLD)
    with pytest.raises(OutputRefused, match=r"generation 2: .*Key \(k\)=\(c\) is still referenced"):
        output.prepare(pub)
    output.close()
    assert database.rows() == OLD


def test_a_table_belongs_to_one_output(database: Database) -> None:
    database.publish(publication(OLD))
    for scope, name in ((Scope(lake="memory://other", pipeline="small"), "feed"), (SCOPE, "other")):
        with pytest.raises(OutputRefused) as caught:
            database.begun(scope, name=name)
        assert caught.value.message == (
            f"output {name}: {TABLE} belongs to output feed of pipeline small in memory://small."
        )


def test_another_key_or_table_for_the_same_output_is_refused(database: Database) -> None:
    database.publish(publication(OLD))
    database.run("CREATE TABLE public.other (k text PRIMARY KEY, n bigint)")
    with pytest.raises(
        OutputRefused,
        match=r"expected public.events with the key k as published, found .* with the key k, n",
    ):
        database.begun(key=("n", "k"))
    with pytest.raises(OutputRefused, match=r"found public.other with the key k"):
        database.begun(into="public.other")


def test_columns_that_change_later_are_refused(database: Database) -> None:
    database.publish(publication(OLD))
    database.run("ALTER TABLE public.events ADD COLUMN more bigint NOT NULL DEFAULT 0")
    wide = publication([{"k": "z", "n": 1, "more": 2}], plan=5, first=2)
    output = database.begun()
    with pytest.raises(OutputRefused) as caught:
        output.prepare(wide)
    assert caught.value.message.endswith(
        f"column 'more' of {TABLE} is NOT NULL, but intervals that were written before have no value for it."
    )
    database.run("ALTER TABLE public.events ALTER COLUMN more DROP NOT NULL")
    output.prepare(wide)
    output.publish(wide, resumed=False)
    database.run("ALTER TABLE public.events ALTER COLUMN n TYPE numeric")
    with pytest.raises(
        OutputRefused,
        match=r"column 'n' of table .*: expected bigint as in its history .*, found numeric",
    ):
        output.prepare(publication(OLD, plan=6, first=3))
    output.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "TRUNCATE tallystick.progress",
            "expected 1 written intervals in tallystick.progress, found 0.",
        ),
        (
            "DELETE FROM tallystick.outputs",
            f"expected plan {1:032x} of the ledger in tallystick.progress, found no row of the interval.",
        ),
        (
            "DROP SCHEMA tallystick CASCADE",
            f"expected plan {1:032x} of the ledger in tallystick.progress, found no row of the interval.",
        ),
        (
            "UPDATE tallystick.progress SET plan = 'x', generation = 0",
            f"{TABLE} has generation 0, plan x, but the ledger replaces plan {1:032x} by {2:032x}.",
        ),
        (
            "UPDATE tallystick.progress SET generation = 2",
            f"{TABLE} has generation 2, plan {1:032x}, but the ledger replaces plan {1:032x} by {2:032x}.",
        ),
        (
            "UPDATE tallystick.progress SET \"end\" = '2013-01-03'",
            f"{TABLE} has generation 1, plan {1:032x}, of an interval that ends at 2013-01-03 00:00:00+00:00.",
        ),
        (
            "DELETE FROM tallystick.history_{} WHERE k = 'a'",
            "expected 3 rows of the interval as in tallystick.progress, found 2 in tallystick.history_{}.",
        ),
    ],
)
def test_a_database_that_contradicts_the_ledger_is_refused(
    database: Database, statement: str, message: str
) -> None:
    database.publish(publication(OLD))
    number = database.run("SELECT right(history, 16) FROM tallystick.outputs")[0][0]
    if statement.startswith("DELETE FROM tallystick.outputs"):
        database.run("TRUNCATE tallystick.progress")
        database.run("ALTER TABLE tallystick.progress DROP CONSTRAINT progress_output_fkey")
    database.run(statement.format(number))
    output = database.begun()
    new = publication([], plan=2, generation=2, instead_of=1, before=OLD)
    prefix = PREFIX.replace("generation 1", "generation 2")
    for act in (output.prepare, lambda pub: output.publish(pub, resumed=True)):
        with pytest.raises(OutputRefused) as caught:
            act(new)
        assert caught.value.message == (
            f"{prefix}the content of {TABLE} is in doubt: " + message.format(number)
        )
    output.close()
    assert database.rows() == OLD


def test_an_unreachable_server_and_missing_rights_are_errors_with_a_hint(
    database: Database,
) -> None:
    pub = publication(OLD)
    away = database.output(host="127.0.0.1", port=free_port())
    reader = database.output(user=f"reader_{database.name}")
    with pytest.raises(
        OutputUnavailable,
        match=r"^output feed of \[2013-01-01T.*, generation 1: table public.events",
    ):
        away.prepare(pub)
    with pytest.raises(
        OutputUnavailable,
        match=r"^output feed: table public.events of connection default: connection",
    ):
        away.begin(SCOPE)
    with pytest.raises(SettingsError, match=r'database "nowhere" does not exist'):
        database.output(dbname="nowhere").prepare(pub)
    role = f"reader_{database.name}"
    database.run(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(SettingsError, match="the user lacks SELECT, INSERT, UPDATE, DELETE"):
        reader.prepare(pub)
    with pytest.raises(
        SettingsError, match=r"output feed: .*permission denied for database"
    ) as caught:
        reader.begin(SCOPE)
    reader.close()
    assert "docs/reference/outputs.md" in caught.value.hint


def test_the_rights_that_the_page_lists_are_sufficient(database: Database) -> None:
    role = f"writer_{database.name}"
    for statement in (
        f"CREATE ROLE {role} LOGIN",
        f"CREATE SCHEMA tallystick AUTHORIZATION {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON public.events TO {role}",
    ):
        database.run(statement)
    database.publish(publication(OLD), user=role)
    database.publish(publication([], plan=2, generation=2, instead_of=1, before=OLD), user=role)
    assert database.rows() == []
