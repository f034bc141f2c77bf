"""Several publishers of one output: late, frozen, at once. And the guards: each one that is dropped is noticed."""

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
from unit.outputs.sendings import SCOPE, publication


def replaced_again(rows: list[dict[str, Any]]) -> Publication:
    """The third generation of the later interval."""
    return publication(rows, plan=3, generation=3, instead_of=2, before=NEW, first=2)


def test_of_two_publishers_the_later_one_writes_and_the_other_is_told(database: Database) -> None:
    one, other = database.begun(), database.begun()
    other.publish(first()[0], resumed=False)
    with pytest.raises(OutputBusy) as caught:
        one.publish(first()[1], resumed=False)
    assert caught.value.message == (
        "output feed of [2013-01-02T00:00:00.000Z, 2013-01-03T00:00:00.000Z), generation 1: another publisher has taken "
        "output feed (table public.events of connection default: epoch 2, ours is 1)."
    )
    one.publish(first()[0], resumed=True)  # it finds that nothing is left to write
    other.publish(first()[1], resumed=False)
    assert database.rows() == ALL_OLD
    one.close()
    other.close()


@pytest.mark.parametrize("step", ["create the stage", "begin", "lock"])
def test_a_publisher_that_was_frozen_wakes_after_a_replacement_and_changes_nothing(
    database: Database, step: str
) -> None:
    database.publish(*first())
    frozen = database.begun()
    at_step(frozen, step, lambda: database.publish(second(), replaced_again(OLD)))
    with pytest.raises(OutputBusy, match="another publisher has taken output feed"):
        frozen.publish(second(), resumed=True)
    frozen.close()
    assert database.rows() == ALL_OLD


def test_one_that_took_the_output_last_but_read_the_ledger_first_changes_nothing(
    database: Database,
) -> None:
    database.publish(*first(), second())
    late = database.begun()
    with pytest.raises(OutputBusy) as caught:
        late.publish(first()[1], resumed=False)
    assert f"holds generation 2, plan {2:032x}: it was replaced meanwhile" in caught.value.message
    late.close()
    assert database.rows() == ALL_NEW


def test_one_that_stands_still_in_its_transaction_is_waited_for_and_told(
    database: Database,
) -> None:
    database.publish(*first())
    frozen = database.begun()
    told: list[str] = []

    def another_comes() -> None:
        with pytest.raises(OutputBusy) as caught:
            database.begun(lock_timeout_s=1)
        told.append(caught.value.message)

    at_step(frozen, "reveal", another_comes)
    frozen.publish(second(), resumed=False)
    frozen.close()
    assert told == [
        "output feed: another publisher has held output feed (table public.events of connection default) for 1 s."
    ]
    assert database.rows() == ALL_NEW


def test_one_that_stands_still_for_long_is_ended_by_the_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.publish(*first())
    monkeypatch.setattr(postgres_session, "IDLE_S", 1)
    frozen = database.begun()
    # The next one waits for the lock, which the server takes from the frozen one after a second.
    at_step(frozen, "reveal", lambda: database.publish(second(), replaced_again(OLD)))
    with pytest.raises(OutputUnavailable, match="idle-in-transaction timeout"):
        frozen.publish(second(), resumed=False)
    frozen.close()
    assert database.rows() == ALL_OLD


def test_many_at_once_end_with_each_row_once(database: Database) -> None:
    """Four at once, each beginning anew while anything is left, as their tasks' retries do."""
    sendings = [*first(), publication([{"k": "a", "n": 7}], plan=20, first=3)]
    failed: list[BaseException] = []
    together = threading.Barrier(4)

    def publisher(order: list[Publication]) -> None:
        try:
            together.wait(30)
            left = list(order)
            while left:
                left = attempt(database, left)
        except BaseException as error:  # noqa: BLE001 - a thread's end is told by the test
            failed.append(error)

    orders = [sendings, sendings[::-1], sendings[1:] + sendings[:1], sendings]
    threads = [threading.Thread(target=publisher, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert database.rows() == [{"k": "a", "n": 7}, *ALL_OLD[1:]]
    assert database.run("SELECT intervals FROM tallystick.outputs") == [(3,)]


def attempt(database: Database, left: list[Publication]) -> list[Publication]:
    """One task: what it could not publish, because another one took the output."""
    output = database.output()
    try:
        output.begin(SCOPE)
        for number, one in enumerate(left):
            try:
                output.prepare(one)
                output.publish(one, resumed=True)
            except OutputBusy:
                return left[number:]
    except OutputBusy:
        return left
    finally:
        output.close()
    return []


# ---------------------------------------------------------------- mutants


def scenario(database: Database) -> list[Any]:
    """What the table holds, or what is told, after each step of a story in which every guard has its turn."""
    seen: list[Any] = []

    def step(output: PostgresTable, one: Publication) -> None:
        try:
            output.publish(one, resumed=True)
        except TallystickError as error:
            seen.append(error.kind)
        seen.append(database.rows())

    older, output = database.begun(), database.begun()
    hides = publication([{"k": "b", "n": 100}, {"k": "x", "n": 0}], plan=8, first=5)
    for one in (hides, *first(), second(), second(), first()[1]):
        step(output, one)
    step(older, publication([{"k": "o", "n": 0}], plan=30, first=7))
    step(output, publication([], plan=11, generation=2, instead_of=8, before=[{"k": "b"}], first=5))
    step(output, replaced_again(OLD))
    database.run("UPDATE tallystick.outputs SET intervals = intervals + 1")
    step(output, publication([{"k": "p", "n": 0}], plan=31, first=8))
    older.close()
    output.close()
    return seen


def story() -> list[Any]:
    """What the scenario must be, told by hand."""
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


def test_the_story_that_the_mutants_break(database: Database) -> None:
    assert scenario(database) == story()


REVEAL, TOUCH = Statements.reveal, Statements.touch


def nothing(*of: Any) -> None:
    """A guard that is not there."""
    del of


def earliest(steps: Statements) -> sql.Composed:
    """The earliest interval's row instead of the latest one's."""
    return sql.SQL(REVEAL(steps).as_string(None).replace("DESC", "ASC"))  # type: ignore[arg-type]


def only_the_plans_keys(steps: Statements) -> sql.Composed:
    """The keys that the interval had are not looked at."""
    return sql.SQL(TOUCH(steps).as_string(None).replace("= %(start)s", "= %(start)s AND false"))  # type: ignore[arg-type]


MUTANTS: list[tuple[Any, str, Callable[..., Any] | Any]] = [
    (PostgresTable, "_check_epoch", nothing),
    (PostgresTable, "_check_generation", nothing),
    (PostgresTable, "_held", nothing),
    (Statements, "reveal", earliest),
    (Statements, "touch", only_the_plans_keys),
    (Statements, "forget", lambda _: sql.SQL("SELECT %(start)s")),
    (Statements, "remove", lambda _: sql.SQL("SELECT 1")),
    (Statements, "keep", lambda _: sql.SQL("SELECT %(start)s")),
    (
        statements,
        "COUNT_PROGRESS",
        sql.SQL("SELECT intervals FROM tallystick.outputs WHERE output = %s"),
    ),
    (statements, "NOTE", sql.SQL("SELECT %s, %s, %s, %s, %s, %s")),
]


@pytest.mark.parametrize(("where", "name", "mutant"), MUTANTS, ids=[m[1] for m in MUTANTS])
def test_a_guard_that_is_dropped_is_noticed(
    database: Database, where: Any, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, mutant)
    assert scenario(database) != story()


@pytest.mark.parametrize("lock", [True, False])
def test_without_the_lock_on_the_outputs_row_two_at_once_would_write(
    database: Database, lock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are in their transactions at once: with the lock the second is told to come later."""
    if not lock:
        text = "SELECT epoch, intervals FROM tallystick.outputs WHERE output = %s"
        monkeypatch.setattr(statements, "LOCK", sql.SQL(text))
    database.publish(*first())
    output = database.begun()
    other = database.output(lock_timeout_s=1)
    other._owner, other._epoch = output._owner, output._epoch  # as if both had it
    said: list[str] = []

    def at_once() -> None:
        try:
            other.publish(publication([{"k": "q", "n": 1}], plan=40, first=9), resumed=False)
        except (OutputBusy, OutputUnavailable, OutputRefused) as error:
            said.append(error.kind)

    at_step(output, "touch", at_once)
    output.publish(second(), resumed=False)
    output.close()
    other.close()
    assert said == (["output_busy"] if lock else [])
