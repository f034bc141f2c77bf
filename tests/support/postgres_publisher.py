"""A publisher of a replacement that kills itself at a step."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

from tallystick.connections.postgres import PostgresSettings
from tallystick.outputs.port import Publication
from tallystick.outputs.postgres import PostgresOutput
from tallystick.outputs.postgres.session import Session
from tallystick.outputs.postgres.table import PostgresTable
from unit.outputs.publications import SCOPE, publication

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
NEW = [{"k": "a", "n": 1}, {"k": "b", "n": 20}, {"k": "d", "n": 4}]
# The rows of an earlier interval: its `c` is visible after the later interval no longer has one.
EARLIER = [{"k": "c", "n": 30}, {"k": "e", "n": 5}]
ALL_OLD = [*OLD, EARLIER[1]]
ALL_NEW = [NEW[0], NEW[1], EARLIER[0], NEW[2], EARLIER[1]]

# The statements of one publication in order, from the first row on; `copy` is not a statement.
STAGING = (
    *("read the table", "read the columns", "read the keys", "drop the stage"),
    *("create the stage", "copy", "analyze the stage", "find nulls", "find duplicate keys"),
)
DECIDING = (
    *(
        "begin",
        "durable",
        "lock",
        "progress",
        "count progress",
        "read the table",
        "read the columns",
    ),
    *("read the keys", "count before", "store the keys", "analyze the keys"),
    *("delete from the history", "insert into the history"),
    *("delete from the table", "upsert into the table"),
    *("record progress", "count intervals", "commit"),
)


def first() -> tuple[Publication, Publication]:
    """Return two intervals before the replacement."""
    return publication(EARLIER, plan=9), publication(OLD, first=2)


def second() -> Publication:
    """Return the replacement of the later one."""
    return publication(NEW, plan=2, generation=2, instead_of=1, before=OLD, first=2)


def die() -> None:
    """Kill this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(host: str, database: str, when: str, step: str, nth: int) -> None:
    """Publish, and die."""
    settings = PostgresSettings(host=host, dbname=database, user="postgres")
    output = PostgresTable(
        PostgresOutput(name="feed", table="events", into="public.events", key=["k"]),
        lambda: settings,
    )
    output.begin(SCOPE)
    real, copy, left = Session.run, Session.copy, nth

    def run(session: Session, name: str, *of: Any) -> Any:
        nonlocal left
        left -= name == step
        due = name == step and left == 0
        if due and when == "before":
            die()
        result = real(session, name, *of)
        if due:
            die()
        return result

    def copied(session: Session, query: Any, rows: Any) -> None:
        def rows_until_death() -> Iterator[Any]:
            yield rows[0]
            if step == "copy":
                die()  # the COPY has not ended
            yield from rows[1:]

        copy(session, query, rows_until_death())

    Session.run = run  # type: ignore[method-assign]
    Session.copy = copied  # type: ignore[method-assign,assignment]
    output.publish(second(), resumed=False)
