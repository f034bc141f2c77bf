"""A table has, for each key, the row of the last interval with the key, after replacements in any order."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import count, permutations
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.postgres_tables import Database
from tallystick.outputs.port import Publication, Scope
from unit.outputs.publications import SCOPE, TableRows, publication

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
NEW = [{"k": "a", "n": 1}, {"k": "b", "n": 20}, {"k": "d", "n": 4}]


def replaced(
    values: Any, before: Any, *, plan: int = 2, first: int = 1, generation: int = 2
) -> Any:
    """Return a replacement of the previous plan."""
    return publication(
        values,
        plan=plan,
        generation=generation,
        instead_of=plan - 1,
        before=before,
        first=first,
    )


def test_each_row_is_written_once_and_the_progress_row_names_the_plan(database: Database) -> None:
    database.publish(publication(OLD))
    assert database.rows() == OLD
    assert database.run(
        'SELECT output, "start", "end", generation, plan, rows FROM tallystick.progress'
    ) == [
        (
            "small.feed.bec12341221a",
            dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
            dt.datetime(2013, 1, 2, tzinfo=dt.UTC),
            1,
            f"{1:032x}",
            3,
        )
    ]
    assert database.run(
        "SELECT lake, pipeline, name, target, key, epoch FROM tallystick.outputs"
    ) == [("memory://small", "small", "feed", "public.events", ["k"], 1)]


def test_publishing_again_changes_nothing(database: Database) -> None:
    database.publish(publication(OLD))
    before = database.run("SELECT xmin::text, ctid::text FROM public.events")
    database.publish(publication(OLD))
    output = database.begun()
    output.publish(publication(OLD), resumed=True)
    output.publish(publication(OLD), resumed=False)
    output.close()
    assert database.run("SELECT xmin::text, ctid::text FROM public.events") == before


def test_a_replacement_removes_dropped_rows_and_writes_only_changed_ones(
    database: Database,
) -> None:
    database.publish(publication(OLD))
    (unchanged,) = database.run("SELECT xmin::text FROM public.events WHERE k = 'a'")
    database.publish(replaced(NEW, OLD))
    assert database.rows() == NEW
    assert database.run("SELECT xmin::text FROM public.events WHERE k = 'a'") == [unchanged]


def test_an_empty_replacement_leaves_nothing_of_the_interval(database: Database) -> None:
    other = [{"k": "z", "n": 26}]
    database.publish(publication(OLD), publication(other, plan=7, first=2))
    database.publish(replaced([], OLD))
    assert database.rows() == other
    database.publish(replaced(NEW, [], plan=3, generation=3))
    assert database.rows() == [*NEW, *other]


@pytest.mark.parametrize("order", list(permutations([1, 2, 3])), ids=str)
def test_intervals_in_any_order_give_the_same_table_and_hidden_rows_return(
    database: Database, order: tuple[int, ...]
) -> None:
    rows = {day: [{"k": "a", "n": day}, {"k": f"only {day}", "n": 0}] for day in order}
    database.publish(*(publication(rows[day], plan=10 * day, first=day) for day in order))
    alone = [{"k": f"only {day}", "n": 0} for day in (1, 2, 3)]
    assert database.rows() == [{"k": "a", "n": 3}, *alone]
    # The intervals lose the key one by one: first the last interval, then the others.
    for day, latest in ((3, 2), (1, 2), (2, None)):
        remaining = rows[day][1:]
        database.publish(replaced(remaining, rows[day], plan=10 * day + 1, first=day))
        assert database.rows() == [*([{"k": "a", "n": latest}] if latest else []), *alone]


def test_a_replaced_interval_does_not_overwrite_rows_of_a_later_one(
    database: Database,
) -> None:
    database.publish(publication(OLD), publication(NEW, plan=7, first=2))
    database.publish(replaced([{"k": "a", "n": 100}], OLD))
    assert database.rows() == NEW


# A generation of an interval: its day and its rows.
STEPS = st.lists(
    st.tuples(
        st.integers(1, 4), st.dictionaries(st.sampled_from("abcde"), st.integers(0, 3), max_size=5)
    ),
    min_size=1,
    max_size=8,
)
_examples = count(1)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.booleans())
def test_the_table_equals_the_intervals_after_every_publication(
    database: Database, steps: list[tuple[int, dict[str, int]]], reopen: bool
) -> None:
    """The reference is computed in another way: a dictionary, updated with the rows of all intervals by time."""
    number = next(_examples)
    into = f"public.example_{number}"
    database.run(f"CREATE TABLE {into} (k text PRIMARY KEY, n bigint)")
    scope = Scope(lake=f"memory://{number}", pipeline="small")
    output = database.begun(scope, into=into)
    intervals: dict[int, dict[str, int]] = {}
    plans: dict[int, int] = {}
    for plan, (day, rows) in enumerate(steps, start=1):
        if reopen:
            output.close()
            output = database.begun(scope, into=into)
        pub = publication(
            as_rows(rows),
            plan=plan,
            generation=plan,
            first=day,
            instead_of=plans.get(day),
            before=as_rows(intervals.get(day, {})),
        )
        output.prepare(pub)
        output.publish(pub, resumed=False)
        intervals[day], plans[day] = rows, plan
        expected: dict[str, int] = {}
        for at in sorted(intervals):
            expected |= intervals[at]
        assert database.rows(into) == as_rows(dict(sorted(expected.items())))
    output.close()


def as_rows(rows: dict[str, int]) -> list[dict[str, Any]]:
    """Return rows of keys and numbers."""
    return [{"k": k, "n": n} for k, n in rows.items()]


def typed(table: pa.Table, **options: Any) -> Publication:
    """Return a publication of one Arrow table."""
    pub = publication([], **options)
    return Publication(**{f: getattr(pub, f) for f in pub.__slots__} | {"rows": TableRows(table)})


TYPES = {
    "yes": (pa.bool_(), "boolean", True),
    "small": (pa.int32(), "integer", -(2**31)),
    "wider": (pa.int32(), "bigint", 2**31 - 1),
    "big": (pa.int64(), "bigint", 2**63 - 1),
    "counted": (pa.int64(), "numeric(19)", -(2**63)),
    "short": (pa.float32(), "real", 0.5),
    "float": (pa.float64(), "double precision", 0.1),
    "cents": (pa.decimal128(9, 2), "numeric(12,2)", Decimal("0.10")),
    "exact": (pa.decimal128(38, 10), "numeric", Decimal("1.5000000000")),
    "day": (pa.date32(), "date", dt.date(2013, 1, 1)),
    "naive": (pa.timestamp("us"), "timestamp", dt.datetime(2013, 1, 1, 5, 0, 0, 1)),  # noqa: DTZ001 - a column without a zone
    "instant": (
        pa.timestamp("us", tz="UTC"),
        "timestamptz",
        dt.datetime(2013, 1, 1, 5, 0, 0, 1, tzinfo=dt.UTC),
    ),
    "words": (pa.string(), "text", 'é\n\t\\N "quoted"'),
    "few": (pa.large_string(), "varchar(3)", "é  "),
    "bytes": (pa.binary(), "bytea", b"\x00\xff\\"),
    "fixed": (pa.binary(2), "bytea", b"\x00\xff"),
    "clock": (pa.time64("us"), "time", dt.time(23, 59, 59, 999_999)),
    "id": (pa.uuid(), "uuid", UUID("00112233-4455-6677-8899-aabbccddeeff")),
    "device": (
        pa.struct([("os", pa.string()), ("ids", pa.list_(pa.int64()))]),
        "jsonb",
        {"os": 'é "x"', "ids": [1, None]},
    ),
    "tags": (pa.list_(pa.string()), "jsonb", ["a", None, ""]),
    "counts": (pa.map_(pa.string(), pa.int64()), "jsonb", {"b": 1, "a": None}),
}


def test_values_of_every_type_and_null_arrive_unchanged(database: Database) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, (_, kind, _) in TYPES.items())
    database.run(f"CREATE TABLE public.typed (k text PRIMARY KEY, {columns})")
    schema = pa.schema([("k", pa.string()), *((n, kind) for n, (kind, _, _) in TYPES.items())])
    full = {"k": "full", **{name: value for name, (_, _, value) in TYPES.items()}}
    null = {"k": "null", **dict.fromkeys(TYPES)}
    database.publish(typed(pa.Table.from_pylist([full, null], schema=schema)), into="public.typed")
    assert database.rows("public.typed") == [full, null]


def test_an_equal_value_of_another_scale_replaces_the_first(database: Database) -> None:
    """For numeric, 1.0 = 1.00 is true. The table has the value of the last generation."""
    database.run("CREATE TABLE public.exact (k numeric PRIMARY KEY, n numeric)")
    first, second = (
        pa.table({"k": [Decimal(text)], "n": [Decimal(text)]}) for text in ("1.0", "1.00")
    )
    database.publish(typed(first), into="public.exact")
    database.publish(typed(second, plan=2, generation=2, instead_of=1), into="public.exact")
    assert database.run("SELECT k::text, n::text FROM public.exact") == [("1.00", "1.00")]


def test_lineage_is_written_if_the_table_has_columns_for_it(database: Database) -> None:
    database.run("CREATE TABLE public.some (n bigint, k text UNIQUE, _offset bigint)")
    rows = [{"k": "a", "n": 1, "_offset": 7, "_topic": "events"}]
    database.publish(publication(rows), into="public.some")
    assert database.rows("public.some") == [{"n": 1, "k": "a", "_offset": 7}]


def test_other_columns_keep_their_values_and_other_rows_are_not_changed(
    database: Database,
) -> None:
    database.run("ALTER TABLE public.events ADD COLUMN note text NOT NULL DEFAULT 'none'")
    database.run("INSERT INTO public.events VALUES ('mine', 0, 'kept')")
    database.publish(publication(OLD))
    database.run("UPDATE public.events SET note = 'seen' WHERE k = 'b'")
    database.publish(replaced(NEW, OLD))
    assert database.run("SELECT k, n, note FROM public.events ORDER BY k") == [
        ("a", 1, "none"),
        ("b", 20, "seen"),
        ("d", 4, "none"),
        ("mine", 0, "kept"),
    ]


def test_a_column_that_is_added_is_null_in_intervals_without_it_in_any_order(
    database: Database,
) -> None:
    database.run("ALTER TABLE public.events ADD COLUMN more text")
    wide = [{"k": "a", "n": 1, "more": "x"}]
    narrow = [{"k": "a", "n": 2}]
    database.publish(publication(narrow, plan=5, first=2), publication(wide))
    assert database.rows() == [{"k": "a", "n": 2, "more": None}]
    database.publish(replaced([], narrow, plan=6, first=2))
    assert database.rows() == [{"k": "a", "n": 1, "more": "x"}]
    database.publish(replaced(narrow, [], plan=7, generation=3, first=2))
    assert database.rows() == [{"k": "a", "n": 2, "more": None}]


def test_a_key_can_have_several_columns_in_a_partitioned_table(database: Database) -> None:
    database.run(
        'CREATE TABLE public."Parts" (n bigint, k text, "UNIQUE" date, PRIMARY KEY ("UNIQUE", k)) '
        'PARTITION BY RANGE ("UNIQUE")'
    )
    database.run(
        "CREATE TABLE public.year PARTITION OF public.\"Parts\" FOR VALUES FROM ('2013-01-01') TO ('2014-01-01')"
    )
    rows = [{"k": k, "UNIQUE": dt.date(2013, 1, day), "n": 0} for k in "ab" for day in (1, 2)]
    options = {"into": "public.Parts", "key": ("k", "UNIQUE")}
    database.publish(publication(rows), **options)
    database.publish(replaced(rows[1:], rows), **options)
    assert len(database.rows('public."Parts"')) == 3


def test_lakes_and_outputs_do_not_share_a_table(database: Database) -> None:
    database.publish(publication(OLD))
    database.run("CREATE TABLE public.other (k text PRIMARY KEY, n bigint)")
    database.publish(publication(NEW, output="other"), name="other", into="public.other")
    assert (database.rows(), database.rows("public.other")) == (OLD, NEW)
    histories = database.run("SELECT history FROM tallystick.outputs ORDER BY name")
    assert len({row[0] for row in histories}) == 2
    assert SCOPE.lake == "memory://small"
