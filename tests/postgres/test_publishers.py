"""Several publishers of one output: late, frozen, at once. A mutant per guard."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from support.postgres_publisher import ALL_NEW, ALL_OLD, NEW, OLD, first, second
from support.postgres_tables import Database, at_step
from tallystick.errors import OutputBusy, OutputRefused, OutputUnavailable, TallystickError
from tallystick.outputs.port import Publication
from tallystick.outputs.postgres import session as postgres_session
from tallystick.outputs.postgres import statements
from tallystick.outputs.postgres.statements import Statements
from tallystick.outputs.postgres.table import PostgresTable
from unit.outputs.publications import SCOPE, publication


def replaced_again(rows: list[dict[str, Any]]) -> Publication:
    """Return the third generation of the second interval."""
    return publication(rows, plan=3, generation=3, instead_of=2, before=NEW, first=2)


def test_the_later_of_two_publishers_writes_and_the_other_fails_as_busy(database: Database) -> None:
    older, later = database.begun(), database.begun()
    later.publish(first()[0], resumed=False)
    with pytest.raises(OutputBusy) as caught:
        older.publish(first()[1], resumed=False)
    assert caught.value.message == (
        "output feed of [2013-01-02T00:00:00.000Z, 2013-01-03T00:00:00.000Z), generation 1: another publisher has taken "
        "output feed (table public.events of connection default): expected epoch 1, found 2."
    )
    older.publish(first()[0], resumed=True)  # it finds that nothing is left to write
    later.publish(first()[1], resumed=False)
    assert database.rows() == ALL_OLD
    older.close()
    later.close()


@pytest.mark.parametrize("step", ["create the stage", "begin", "lock"])
def test_a_frozen_publisher_that_resumes_after_a_replacement_changes_nothing(
    database: Database, step: str
) -> None:
    database.publish(*first())
    frozen = database.begun()
    at_step(frozen, step, lambda: database.publish(second(), replaced_again(OLD)))
    with pytest.raises(OutputBusy, match="another publisher has taken output feed"):
        frozen.publish(second(), resumed=True)
    frozen.close()
    assert database.rows() == ALL_OLD


def test_a_publisher_that_took_the_output_last_with_an_old_ledger_changes_nothing(
    database: Database,
) -> None:
    database.publish(*first(), second())
    late = database.begun()
    with pytest.raises(OutputBusy) as caught:
        late.publish(first()[1], resumed=False)
    assert (
        f"has generation 2, plan {2:032x}, which is newer: it was replaced in the meantime"
        in caught.value.message
    )
    late.close()
    assert database.rows() == ALL_NEW


def test_a_publisher_frozen_in_its_transaction_is_waited_for_and_then_busy(
    database: Database,
) -> None:
    database.publish(*first())
    frozen = database.begun()
    messages: list[str] = []

    def take_the_output() -> None:
        with pytest.raises(OutputBusy) as caught:
            database.begun(lock_timeout_s=1)
        messages.append(caught.value.message)

    at_step(frozen, "upsert into the table", take_the_output)
    frozen.publish(second(), resumed=False)
    frozen.close()
    assert messages == [
        "output feed: another publisher has locked output feed (table public.events of connection default) for 1 s."
    ]
    assert database.rows() == ALL_NEW


def test_a_publisher_frozen_for_long_is_ended_by_the_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.publish(*first())
    monkeypatch.setattr(postgres_session, "IDLE_S", 1)
    frozen = database.begun()
    # The next publisher waits for the lock, which the server releases when it ends the frozen session after a second.
    at_step(
        frozen, "upsert into the table", lambda: database.publish(second(), replaced_again(OLD))
    )
    with pytest.raises(OutputUnavailable, match="idle-in-transaction timeout"):
        frozen.publish(second(), resumed=False)
    frozen.close()
    assert database.rows() == ALL_OLD


def test_four_publishers_at_once_end_with_each_row_once(database: Database) -> None:
    """Each begins again while anything is left, as retries of a task do."""
    publications = [*first(), publication([{"k": "a", "n": 7}], plan=20, first=3)]
    failed: list[BaseException] = []
    together = threading.Barrier(4)

    def publisher(order: list[Publication]) -> None:
        try:
            together.wait(30)
            left = list(order)
            while left:
                left = attempt(database, left)
        except BaseException as error:  # noqa: BLE001 - the test checks the errors of its threads
            failed.append(error)

    orders = [publications, publications[::-1], publications[1:] + publications[:1], publications]
    threads = [threading.Thread(target=publisher, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert database.rows() == [{"k": "a", "n": 7}, *ALL_OLD[1:]]
    assert database.run("SELECT intervals FROM tallystick.outputs") == [(3,)]


def attempt(database: Database, left: list[Publication]) -> list[Publication]:
    """Publish as one task does. Returns what is left because another publisher took the output."""
    output = database.output()
    try:
        output.begin(SCOPE)
        for number, pub in enumerate(left):
            try:
                output.prepare(pub)
                output.publish(pub, resumed=True)
            except OutputBusy:
                return left[number:]
    except OutputBusy:
        return left
    finally:
        output.close()
    return []


# ---------------------------------------------------------------- mutants


def scenario(database: Database) -> list[Any]:
    """Return the rows of the table, and the errors, after each step of a scenario that needs every guard."""
    results: list[Any] = []

    def step(output: PostgresTable, pub: Publication) -> None:
        try:
            output.publish(pub, resumed=True)
        except TallystickError as error:
            results.append(error.kind)
        results.append(database.rows())

    older, output = database.begun(), database.begun()
    hides = publication([{"k": "b", "n": 100}, {"k": "x", "n": 0}], plan=8, first=5)
    for pub in (hides, *first(), second(), second(), first()[1]):
        step(output, pub)
    step(older, publication([{"k": "o", "n": 0}], plan=30, first=7))
    step(output, publication([], plan=11, generation=2, instead_of=8, before=[{"k": "b"}], first=5))
    step(output, replaced_again(OLD))
    database.run("UPDATE tallystick.outputs SET intervals = intervals + 1")
    step(output, publication([{"k": "p", "n": 0}], plan=31, first=8))
    older.close()
    output.close()
    return results


def expected() -> list[Any]:
    """Return the expected results of the scenario, written by hand."""
    hidden = [{"k": "b", "n": 100}, {"k": "x", "n": 0}]
    old = [ALL_OLD[0], hidden[0], *ALL_OLD[2:], hidden[1]]
    new = [ALL_NEW[0], hidden[0], *ALL_NEW[2:], hidden[1]]
    early = [{"k": "b", "n": 100}, {"k": "c", "n": 30}, {"k": "e", "n": 5}, {"k": "x", "n": 0}]
    return [
        *(hidden, early, old, new, new),
        *("output_busy", new, "output_busy", new),
        *(ALL_NEW, ALL_OLD),
        *("output_refused", ALL_OLD),
    ]


def test_the_scenario_that_the_mutants_break(database: Database) -> None:
    assert scenario(database) == expected()


UPSERT_ROWS, STORE_KEYS = Statements.upsert_rows, Statements.store_keys


def nothing(*of: Any) -> None:
    """Replace a guard that is dropped."""
    del of


def earliest(steps: Statements) -> sql.Composed:
    """Return a statement that takes the row of the first interval instead of the last."""
    return sql.SQL(UPSERT_ROWS(steps).as_string(None).replace("DESC", "ASC"))  # type: ignore[arg-type]


def only_the_plans_keys(steps: Statements) -> sql.Composed:
    """Return a statement that ignores the previous keys of the interval."""
    return sql.SQL(
        STORE_KEYS(steps).as_string(None).replace("= %(start)s", "= %(start)s AND false")
    )  # type: ignore[arg-type]


MUTANTS: list[tuple[Any, str, Callable[..., Any] | Any]] = [
    (PostgresTable, "_check_epoch", nothing),
    (PostgresTable, "_check_generation", nothing),
    (PostgresTable, "_held", nothing),
    (Statements, "upsert_rows", earliest),
    (Statements, "store_keys", only_the_plans_keys),
    (Statements, "delete_history", lambda _: sql.SQL("SELECT %(start)s")),
    (Statements, "delete_rows", lambda _: sql.SQL("SELECT 1")),
    (Statements, "insert_history", lambda _: sql.SQL("SELECT %(start)s")),
    (
        statements,
        "COUNT_PROGRESS",
        sql.SQL("SELECT intervals FROM tallystick.outputs WHERE output = %s"),
    ),
    (statements, "RECORD_PROGRESS", sql.SQL("SELECT %s, %s, %s, %s, %s, %s")),
]


@pytest.mark.parametrize(("owner", "name", "mutant"), MUTANTS, ids=[m[1] for m in MUTANTS])
def test_a_dropped_guard_changes_the_scenario(
    database: Database, owner: Any, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mutant)
    assert scenario(database) != expected()


@pytest.mark.parametrize("lock", [True, False])
def test_without_the_lock_on_the_row_of_the_output_two_at_once_would_write(
    database: Database, lock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are in their transactions at once: with the lock, the second fails as busy."""
    if not lock:
        text = "SELECT epoch, intervals FROM tallystick.outputs WHERE output = %s"
        monkeypatch.setattr(statements, "LOCK", sql.SQL(text))
    database.publish(*first())
    output = database.begun()
    other = database.output(lock_timeout_s=1)
    other._owner, other._epoch = output._owner, output._epoch  # as if both had the output
    errors: list[str] = []

    def at_once() -> None:
        try:
            other.publish(publication([{"k": "q", "n": 1}], plan=40, first=9), resumed=False)
        except (OutputBusy, OutputUnavailable, OutputRefused) as error:
            errors.append(error.kind)

    at_step(output, "store the keys", at_once)
    output.publish(second(), resumed=False)
    output.close()
    other.close()
    assert errors == (["output_busy"] if lock else [])
