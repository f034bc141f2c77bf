"""Whoever dies, at any step, on either side: the table holds the old rows or the new ones, and the next one ends it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres_proxy import Proxy
from support.postgres_publisher import ALL_NEW, ALL_OLD, DECIDING, STAGING, first, second
from support.postgres_tables import Database, at_step, fresh
from tallystick.connections.postgres import PostgresSettings
from tallystick.errors import OutputUnavailable
from tallystick.outputs.postgres import PostgresOutput
from tallystick.outputs.postgres import session as postgres_session
from tallystick.outputs.postgres.table import PostgresTable
from tallystick_devstack.postgres import Postgres

PUBLISHER = Path(__file__).parents[1] / "support" / "postgres_publisher.py"


def taken_up(database: Database) -> None:
    """The next publisher brings it to its end, and a third one finds nothing to do."""
    for _ in range(2):
        output = database.begun()
        output.publish(second(), resumed=True)
        output.close()
        assert database.rows() == ALL_NEW
    assert database.run("SELECT sum(rows), count(*) FROM tallystick.progress") == [(5, 2)]
    history = database.run("SELECT history FROM tallystick.outputs")[0][0]
    assert database.run(f"SELECT count(*) FROM tallystick.{history}") == [(5,)]


def test_the_steps_are_all_that_a_publication_sends(database: Database) -> None:
    database.publish(*first())
    output = database.begun()
    ran = at_step(output, "none", lambda: None)
    output.publish(second(), resumed=False)
    output.close()
    # Whether it is there at all is asked first.
    assert ran == ["progress", *(s for s in STAGING if s != "copy"), *DECIDING]


STEPS = [
    *(("after", step, 1) for step in STAGING if step != "copy"),
    ("in", "copy", 1),
    *(
        # A step that staging had, too, is the second of its name; `progress` was the first of all.
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
    died = subprocess.run(
        [
            *(sys.executable, str(PUBLISHER), str(database.server.socket_dir), database.name),
            *(when, step, str(nth)),
        ],
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert died.returncode == -9, died.stderr
    decided = (when, step) == ("after", "commit")
    assert database.rows() == (ALL_NEW if decided else ALL_OLD)
    taken_up(database)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Database]:
    """A database of a server that this test may kill."""
    running = Postgres(tmp_path)
    running.start()
    made = fresh(running)
    yield made
    made.close()
    running.stop()


def test_a_server_that_dies_in_mid_transaction_loses_and_doubles_nothing(own: Database) -> None:
    own.publish(*first())
    for step in ("lock", "keep", "reveal", "commit"):
        output = own.begun()
        killed: list[str] = []

        def restarted(killed: list[str] = killed, step: str = step) -> None:
            killed.append(step)
            assert own.server.process is not None
            own.server.process.kill()
            own.server.start()
            own.close()

        at_step(output, step, restarted)
        with pytest.raises(
            OutputUnavailable, match=r"output feed of \[2013-01-02T.*generation 2: table public"
        ):
            output.publish(second(), resumed=False)
        output.close()
        assert killed == [step]
        assert own.rows() == ALL_OLD
    taken_up(own)
    assert own.server.process is not None
    own.server.process.kill()  # what the ledger was told of survives
    own.server.start()
    own.close()
    assert own.rows() == ALL_NEW


@pytest.mark.parametrize("arrives", [True, False])
def test_where_the_answer_to_the_commit_is_lost_the_progress_row_tells(
    database: Database, arrives: bool
) -> None:
    database.publish(*first())
    with Proxy(database.server, lose="COMMIT\0", arrives=arrives) as proxy:
        output = database.begun(host="127.0.0.1", port=proxy.port, sslmode="disable")
        # From here on: before, the output was taken by a commit of its own.
        proxy.armed.set()
        with pytest.raises(
            OutputUnavailable, match=r"output feed of .*the database says whether it was written"
        ):
            output.publish(second(), resumed=False)
        assert proxy.lost.is_set()
        # The server has answered, so it has ended the transaction, one way or the other.
        assert database.rows() == (ALL_NEW if arrives else ALL_OLD)
        before = xmins(database)
        # The same output goes on by itself, on another connection, and writes nothing twice.
        output.publish(second(), resumed=True)
        output.close()
    assert (xmins(database) == before) is arrives
    taken_up(database)


def xmins(database: Database) -> Counter[str]:
    """Which transactions wrote the rows."""
    return Counter(one[0] for one in database.run("SELECT xmin::text FROM public.events"))


@pytest.mark.parametrize("lose", ["reveal", "COPY"])
def test_a_server_that_falls_silent_is_not_waited_for_for_ever(
    database: Database, lose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.publish(*first())
    monkeypatch.setattr(postgres_session, "GRACE_S", 0.2)
    text = {"reveal": "LATERAL", "COPY": "COPY "}[lose]
    with Proxy(database.server, lose=text, arrives=True, silent=True) as proxy:
        output = database.begun(
            host="127.0.0.1", port=proxy.port, sslmode="disable", statement_timeout_s=1
        )
        proxy.armed.set()
        with pytest.raises(OutputUnavailable, match=r"output feed of \[2013-01-02T"):
            output.publish(second(), resumed=False)
        output.close()
    taken_up(database)


def test_a_server_that_never_answers_is_told_in_time() -> None:
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


def test_a_slow_statement_ends_at_its_bound(database: Database) -> None:
    database.publish(*first())
    output = database.begun(lock_timeout_s=1)
    database.run("BEGIN")
    database.run("LOCK TABLE public.events")
    with pytest.raises(OutputUnavailable, match=r"lock timeout") as caught:
        output.publish(second(), resumed=False)
    assert "pg_locks" in caught.value.hint
    database.run("ROLLBACK")
    output.close()
    taken_up(database)
