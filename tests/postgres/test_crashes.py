"""A crash at any step, of publisher or server: the table has the old or the new rows, the next publisher completes it."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import postgres_publisher
from support.killed import killed
from support.postgres_proxy import Proxy
from support.postgres_publisher import ALL_NEW, ALL_OLD, DECIDING, STAGING, first, second
from support.postgres_tables import Database, at_step, fresh
from tallystick.connections.postgres import PostgresSettings
from tallystick.errors import OutputUnavailable
from tallystick.outputs.postgres import PostgresOutput
from tallystick.outputs.postgres import session as postgres_session
from tallystick.outputs.postgres.table import PostgresTable
from tallystick_devstack.postgres import Postgres


def assert_next_completes_it(database: Database) -> None:
    """Publish again: the next publisher completes the publication, and a third finds nothing to do."""
    for _ in range(2):
        output = database.begun()
        output.publish(second(), resumed=True)
        output.close()
        assert database.rows() == ALL_NEW
    assert database.run("SELECT sum(rows), count(*) FROM tallystick.progress") == [(5, 2)]
    history = database.run("SELECT history FROM tallystick.outputs")[0][0]
    assert database.run(f"SELECT count(*) FROM tallystick.{history}") == [(5,)]


def test_the_steps_are_all_statements_of_a_publication(database: Database) -> None:
    database.publish(*first())
    output = database.begun()
    ran = at_step(output, "none", lambda: None)
    output.publish(second(), resumed=False)
    output.close()
    # The first statement checks whether the progress table exists.
    assert ran == ["progress", *(s for s in STAGING if s != "copy"), *DECIDING]


STEPS = [
    *(("after", step, 1) for step in STAGING if step != "copy"),
    ("in", "copy", 1),
    *(
        # A step that staging has, too, is the second of its name; `progress` was the first statement.
        ("after", step, 2 if step in (*STAGING, "progress") else 1)
        for step in DECIDING
    ),
    ("before", "commit", 1),
]


@pytest.mark.parametrize(("when", "step", "nth"), STEPS, ids=str)
def test_a_publisher_that_is_killed_leaves_all_or_nothing(
    database: Database, when: str, step: str, nth: int
) -> None:
    database.publish(*first())
    assert database.rows() == ALL_OLD
    host = str(database.server.socket_dir)
    killed(postgres_publisher.main, host, database.name, when, step, nth)
    decided = (when, step) == ("after", "commit")
    assert database.rows() == (ALL_NEW if decided else ALL_OLD)
    assert_next_completes_it(database)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Database]:
    """Return a database of a server that this test may kill."""
    running = Postgres(tmp_path)
    running.start()
    database = fresh(running)
    yield database
    database.close()
    running.stop()


def test_a_server_that_dies_in_mid_transaction_loses_and_doubles_nothing(own: Database) -> None:
    own.publish(*first())
    for step in ("lock", "insert into the history", "upsert into the table", "commit"):
        output = own.begun()
        restarts: list[str] = []

        def restart(restarts: list[str] = restarts, step: str = step) -> None:
            restarts.append(step)
            assert own.server.process is not None
            own.server.process.kill()
            own.server.start()
            own.close()

        at_step(output, step, restart)
        with pytest.raises(
            OutputUnavailable, match=r"output feed of \[2013-01-02T.*generation 2: table public"
        ):
            output.publish(second(), resumed=False)
        output.close()
        assert restarts == [step]
        assert own.rows() == ALL_OLD
    assert_next_completes_it(own)
    assert own.server.process is not None
    own.server.process.kill()  # what the ledger records as published survives
    own.server.start()
    own.close()
    assert own.rows() == ALL_NEW


@pytest.mark.parametrize("arrives", [True, False])
def test_after_a_lost_answer_to_commit_the_progress_row_shows_the_outcome(
    database: Database, arrives: bool
) -> None:
    database.publish(*first())
    with Proxy(database.server, lose="COMMIT\0", arrives=arrives) as proxy:
        output = database.begun(host="127.0.0.1", port=proxy.port, sslmode="disable")
        # Armed only now: the output was taken by a commit of its own before.
        proxy.armed.set()
        with pytest.raises(
            OutputUnavailable,
            match=r"output feed of .*reads from the database whether it was written",
        ):
            output.publish(second(), resumed=False)
        assert proxy.lost.is_set()
        # The server has answered, so the transaction has ended with a commit or a rollback.
        assert database.rows() == (ALL_NEW if arrives else ALL_OLD)
        before = xmins(database)
        # The same output continues on another connection, and writes nothing twice.
        output.publish(second(), resumed=True)
        output.close()
    assert (xmins(database) == before) is arrives
    assert_next_completes_it(database)


def xmins(database: Database) -> Counter[str]:
    """Return the transactions that wrote the rows, with their number of rows."""
    return Counter(row[0] for row in database.run("SELECT xmin::text FROM public.events"))


@pytest.mark.parametrize("lose", ["upsert", "COPY"])
def test_a_server_that_stops_answering_is_not_waited_for_for_ever(
    database: Database, lose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.publish(*first())
    monkeypatch.setattr(postgres_session, "GRACE_S", 0.2)
    text = {"upsert": "LATERAL", "COPY": "COPY "}[lose]
    with Proxy(database.server, lose=text, arrives=True, silent=True) as proxy:
        output = database.begun(
            host="127.0.0.1", port=proxy.port, sslmode="disable", statement_timeout_s=1
        )
        proxy.armed.set()
        with pytest.raises(OutputUnavailable, match=r"output feed of \[2013-01-02T"):
            output.publish(second(), resumed=False)
        output.close()
    assert_next_completes_it(database)


def test_a_server_that_never_answers_is_an_error_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = PostgresSettings(
            host="127.0.0.1",
            port=silent.getsockname()[1],
            dbname="any",
            user="any",
            connect_timeout_s=1,
        )
        output = PostgresTable(
            PostgresOutput(name="feed", table="events", into="public.events", key=["k"]),
            lambda: settings,
        )
        with pytest.raises(OutputUnavailable, match=r"output feed of .*timeout"):
            output.prepare(second())


def test_a_slow_statement_ends_at_its_timeout(database: Database) -> None:
    database.publish(*first())
    output = database.begun(lock_timeout_s=1)
    database.run("BEGIN")
    database.run("LOCK TABLE public.events")
    with pytest.raises(OutputUnavailable, match=r"lock timeout") as caught:
        output.publish(second(), resumed=False)
    assert "pg_locks" in caught.value.hint
    database.run("ROLLBACK")
    output.close()
    assert_next_completes_it(database)
