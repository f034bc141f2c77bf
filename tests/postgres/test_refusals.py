"""What a table would not take is refused before the ledger says begun: with output, interval and what is wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.postgres_tables import Database
from tallystick.errors import OutputRefused, OutputUnavailable, SettingsError, TallystickError
from tallystick.outputs.port import Publication, Scope
from tallystick_devstack.process import free_port
from unit.outputs.sendings import (
    IN_THE_YEAR_10000,
    SCOPE,
    TableRows,
    in_the_year_10000,
    publication,
)

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
WHO = "output feed of [2013-01-01T00:00:00.000Z, 2013-01-02T00:00:00.000Z), generation 1: "
TABLE = "table public.events of connection default"


def prepared(database: Database, one: Publication, error: type[TallystickError], **how: Any) -> str:
    """What `prepare` says, with and without `begin`; nothing is there, and nothing is in the side tables."""
    said = set()
    for output in (database.output(**how), database.begun(**how)):
        with pytest.raises(error) as caught:
            output.prepare(one)
        output.close()
        said.add(caught.value.message)
    assert database.run("SELECT count(*) FROM tallystick.progress") == [(0,)]
    (message,) = said
    return message


def of_types(rows: dict[str, pa.Array]) -> Publication:
    """One interval of typed columns."""
    one = publication([])
    return Publication(
        **{f: getattr(one, f) for f in one.__slots__} | {"rows": TableRows(pa.table(rows))}
    )


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [{"k": "a", "n": 1}, {"k": None, "n": 2}, {"k": None, "n": 3}],
            f"row 1 has no value in its key column 'k', which {TABLE} must have (rows like that: 2).",
        ),
        (
            [*OLD, {"k": "b", "n": 5}, {"k": "b", "n": 6}, {"k": "a", "n": 5}],
            "2 rows have the key k='a' (keys like that: 2).",
        ),
        ([{"n": 1}], "its rows have no column 'k', which is in the key."),
        (
            [{"k": "a", "n": 1, "more": "x"}],
            f"{TABLE} has no column 'more' (string in the lake).",
        ),
        (
            [{"k": "a", "n": "1"}],
            f"column 'n' is string in the lake and bigint in {TABLE}, which does not hold every value of it.",
        ),
        (
            [{"k": "a", "n": 1.0}],
            f"column 'n' is double in the lake and bigint in {TABLE}, which does not hold every value of it.",
        ),
        (
            [{"k": "a\x00b", "n": 1}],
            f"{TABLE}: PostgreSQL text fields cannot contain NUL (0x00) bytes.",
        ),
    ],
)
def test_rows_that_do_not_fit(database: Database, rows: list[dict[str, Any]], told: str) -> None:
    assert prepared(database, publication(rows, identity=("n",)), OutputRefused) == WHO + told
    assert database.rows() == []


def test_a_time_that_python_cannot_hold(database: Database) -> None:
    """PostgreSQL could: to the year 294276."""
    database.run("ALTER TABLE public.events ADD COLUMN at timestamptz")
    assert prepared(database, in_the_year_10000(), OutputRefused) == IN_THE_YEAR_10000
    assert database.rows() == []


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DROP TABLE public.events", f"{TABLE} is not there."),
        (
            "ALTER TABLE public.events RENAME COLUMN k TO other",
            f"{TABLE} has no column 'k', which is in the key.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey",
            f"{TABLE} has no unique constraint on the key (k) that is checked at once.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey, ADD UNIQUE (k, n)",
            f"{TABLE} has no unique constraint on the key (k) that is checked at once.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey, ADD UNIQUE (k) DEFERRABLE",
            f"{TABLE} has no unique constraint on the key (k) that is checked at once.",
        ),
        (
            "ALTER TABLE public.events DROP CONSTRAINT events_pkey; "
            "CREATE UNIQUE INDEX ON public.events (k) WHERE n > 0",
            f"{TABLE} has no unique constraint on the key (k) that is checked at once.",
        ),
        (
            "ALTER TABLE public.events SET UNLOGGED",
            f"{TABLE} is UNLOGGED or temporary: a crash of the server would empty it.",
        ),
        (
            "ALTER TABLE public.events RENAME TO base; CREATE VIEW public.events AS SELECT * FROM public.base",
            f"{TABLE} is no table: a view or something else has its name.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN n TYPE integer",
            f"column 'n' is long in the lake and integer in {TABLE}, which does not hold every value of it.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN k TYPE char(9)",
            f"column 'k' is string in the lake and character(9) in {TABLE}, which does not hold every value of it.",
        ),
        (
            "CREATE DOMAIN public.short AS text; ALTER TABLE public.events ALTER COLUMN k TYPE public.short",
            f"column 'k' is string in the lake and short in {TABLE}, which does not hold every value of it.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN k TYPE varchar(1)",
            f"row 3 has 2 characters in column 'k', which is character varying(1) in {TABLE}.",
        ),
        (
            "ALTER TABLE public.events ADD COLUMN more text NOT NULL",
            f"column 'more' of {TABLE} is NOT NULL, and its rows have no such column.",
        ),
        (
            "ALTER TABLE public.events DROP COLUMN n, ADD COLUMN n bigint GENERATED ALWAYS AS (1) STORED",
            f"column 'n' of {TABLE} is computed by the database.",
        ),
        (
            "ALTER TABLE public.events ALTER COLUMN n SET NOT NULL",
            f"row 4 has no value in column 'n', which {TABLE} must have (rows like that: 1).",
        ),
    ],
)
def test_tables_that_do_not_fit(database: Database, statement: str, told: str) -> None:
    for one in statement.split("; "):
        database.run(one)
    # A space beyond the length: PostgreSQL itself would drop it without a word.
    rows = [*OLD, {"k": "d ", "n": 4}, {"k": "e", "n": None}]
    assert prepared(database, publication(rows), OutputRefused) == WHO + told


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
    ],
    ids=str,
)
def test_types_that_would_round_cut_or_shift_a_value(
    database: Database, kind: pa.DataType, column: str
) -> None:
    database.run(f"ALTER TABLE public.events ADD COLUMN v {column}")
    one = of_types({"k": pa.array(["a"]), "v": pa.array([None], type=kind)})
    message = prepared(database, one, OutputRefused)
    assert message.startswith(f"{WHO}column 'v' is ")
    assert f" in the lake and {column} in {TABLE}" in message or column == "numeric(18)"


@pytest.mark.parametrize(
    ("statement", "told"),
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
def test_rules_beyond_the_key_speak_in_a_rehearsal_that_is_taken_back(
    database: Database, statement: str, told: str
) -> None:
    for one in statement.split("; "):
        database.run(one)
    output = database.begun()
    with pytest.raises(OutputRefused) as caught:
        output.prepare(publication(OLD))
    assert caught.value.message == f"{WHO}{TABLE}: {told}"
    assert database.rows() == []
    # What does fit is rehearsed, too, and is not there before it is published.
    database.run("ALTER TABLE public.events DROP CONSTRAINT IF EXISTS events_n_check")
    database.run("ALTER TABLE public.events DROP CONSTRAINT IF EXISTS events_k_fkey")
    database.run("DROP INDEX IF EXISTS public.one_n")
    database.run("ALTER TABLE public.events ADD CHECK (n < 100)")
    output.prepare(publication(OLD))
    assert database.rows() == []
    output.publish(publication(OLD), resumed=False)
    assert database.rows() == OLD
    output.close()


def test_a_row_that_others_refer_to_is_not_removed_and_that_is_told_before(
    database: Database,
) -> None:
    database.publish(publication(OLD))
    database.run("CREATE TABLE public.refers (k text REFERENCES public.events)")
    database.run("INSERT INTO public.refers VALUES ('c')")
    output = database.begun()
    one = publication(OLD[:2], plan=2, generation=2, instead_of=1, before=OLD)
    with pytest.raises(OutputRefused, match=r"generation 2: .*Key \(k\)=\(c\) is still referenced"):
        output.prepare(one)
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


def test_another_key_or_table_under_the_same_name_is_refused(database: Database) -> None:
    database.publish(publication(OLD))
    database.run("CREATE TABLE public.other (k text PRIMARY KEY, n bigint)")
    with pytest.raises(
        OutputRefused,
        match=r"into public.events by the key k, and is declared into .* by the key k, n",
    ):
        database.begun(key=("n", "k"))
    with pytest.raises(OutputRefused, match=r"and is declared into public.other by the key k"):
        database.begun(into="public.other")


def test_columns_that_change_later_are_told(database: Database) -> None:
    database.publish(publication(OLD))
    database.run("ALTER TABLE public.events ADD COLUMN more bigint NOT NULL DEFAULT 0")
    wide = publication([{"k": "z", "n": 1, "more": 2}], plan=5, first=2)
    output = database.begun()
    with pytest.raises(OutputRefused) as caught:
        output.prepare(wide)
    assert caught.value.message.endswith(
        f"column 'more' of {TABLE} is NOT NULL, and intervals that were written before have no value for it."
    )
    database.run("ALTER TABLE public.events ALTER COLUMN more DROP NOT NULL")
    output.prepare(wide)
    output.publish(wide, resumed=False)
    database.run("ALTER TABLE public.events ALTER COLUMN n TYPE numeric")
    with pytest.raises(
        OutputRefused, match=r"column 'n' is numeric in table .* and bigint in its history"
    ):
        output.prepare(publication(OLD, plan=6, first=3))
    output.close()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "TRUNCATE tallystick.progress",
            "tallystick.progress has 0 of the 1 intervals that were written.",
        ),
        (
            "DELETE FROM tallystick.outputs",
            f"the ledger knows that plan {1:032x} was written, and tallystick.progress has no row of the interval.",
        ),
        (
            "DROP SCHEMA tallystick CASCADE",
            f"the ledger knows that plan {1:032x} was written, and tallystick.progress has no row of the interval.",
        ),
        (
            "UPDATE tallystick.progress SET plan = 'x', generation = 0",
            f"{TABLE} holds generation 0, plan x, and the ledger wants plan {2:032x} instead of {1:032x}.",
        ),
        (
            "UPDATE tallystick.progress SET generation = 2",
            f"{TABLE} holds generation 2, plan {1:032x}, and the ledger wants plan {2:032x} instead of {1:032x}.",
        ),
        (
            "UPDATE tallystick.progress SET \"end\" = '2013-01-03'",
            f"{TABLE} holds generation 1, plan {1:032x}, of an interval that ends at 2013-01-03 00:00:00+00:00.",
        ),
        (
            "DELETE FROM tallystick.history_{} WHERE k = 'a'",
            "tallystick.history_{} has 2 rows of the interval, and tallystick.progress says 3.",
        ),
    ],
)
def test_a_database_that_does_not_know_what_the_ledger_knows_is_not_guessed_at(
    database: Database, statement: str, told: str
) -> None:
    database.publish(publication(OLD))
    number = database.run("SELECT right(history, 16) FROM tallystick.outputs")[0][0]
    if statement.startswith("DELETE FROM tallystick.outputs"):
        database.run("TRUNCATE tallystick.progress")
        database.run("ALTER TABLE tallystick.progress DROP CONSTRAINT progress_output_fkey")
    database.run(statement.format(number))
    output = database.begun()
    new = publication([], plan=2, generation=2, instead_of=1, before=OLD)
    who = WHO.replace("generation 1", "generation 2")
    for again in (output.prepare, lambda one: output.publish(one, resumed=True)):
        with pytest.raises(OutputRefused) as caught:
            again(new)
        assert caught.value.message == (
            f"{who}what {TABLE} holds is in doubt: " + told.format(number)
        )
    output.close()
    assert database.rows() == OLD


def test_a_server_that_is_away_and_rights_that_are_missing(database: Database) -> None:
    one = publication(OLD)
    away = database.output(host="127.0.0.1", port=free_port())
    reader = database.output(user=f"reader_{database.name}")
    with pytest.raises(
        OutputUnavailable,
        match=r"^output feed of \[2013-01-01T.*, generation 1: table public.events",
    ):
        away.prepare(one)
    with pytest.raises(
        OutputUnavailable,
        match=r"^output feed: table public.events of connection default: connection",
    ):
        away.begin(SCOPE)
    with pytest.raises(SettingsError, match=r'database "nowhere" does not exist'):
        database.output(dbname="nowhere").prepare(one)
    role = f"reader_{database.name}"
    database.run(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(SettingsError, match="the user may not SELECT, INSERT, UPDATE, DELETE"):
        reader.prepare(one)
    with pytest.raises(
        SettingsError, match=r"output feed: .*permission denied for database"
    ) as caught:
        reader.begin(SCOPE)
    reader.close()
    assert "docs/reference/outputs.md" in caught.value.hint


def test_the_rights_that_the_page_lists_are_enough(database: Database) -> None:
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
