"""`tally doctor` logs in to a real database as a publisher does."""

from __future__ import annotations

from typing import Any

from support.postgres_tables import Database
from tallystick.operations.doctor.servers import postgres_checks


def test_a_database_accepts_its_user_and_no_other(database: Database) -> None:
    def named(**how: Any) -> Any:
        return lambda *_: database.settings(**how)

    (check,) = postgres_checks("main", named())
    assert (check.state, check.name) == ("ok", "postgres main"), check
    (check,) = postgres_checks("main", named(user="stranger"))
    assert check.state == "error"
    assert "stranger" in check.found
    (check,) = postgres_checks("main", named(dbname="nowhere"))
    assert check.state == "error"
    assert check.fix == "correct the connection's settings."
