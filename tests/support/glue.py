"""AWS Glue for tests: moto, with the check of a table's version that Glue makes and moto does not, and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from support.fake_output import Killed

CALLS = ("get_table", "create_table", "update_table")


class CheckedGlue:
    """A client of Glue that refuses an update of another version, as Glue does. `step` runs around each call."""

    def __init__(self, client: Any, step: Callable[[str], None] = lambda _: None) -> None:
        self._client, self._step = client, step
        self.made: list[str] = []

    def get_table(self, **how: Any) -> Any:
        """Read a table."""
        return self._called("get_table", how["Name"], how)

    def create_table(self, **how: Any) -> Any:
        """Create a table."""
        return self._called("create_table", how["TableInput"]["Name"], how)

    def update_table(self, **how: Any) -> Any:
        """Change a table, if it has the version of the request."""
        table = how["TableInput"]["Name"]
        self._step(f"before update_table {table}")
        now = self._client.get_table(DatabaseName=how["DatabaseName"], Name=table)["Table"]
        if how.get("VersionId", now["VersionId"]) != now["VersionId"]:
            stated = {"Code": "ConcurrentModificationException", "Message": "Update table failed"}
            raise ClientError({"Error": stated}, "UpdateTable")
        return self._called("update_table", table, how, began=True)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _called(self, name: str, table: str, how: dict[str, Any], *, began: bool = False) -> Any:
        if not began:
            self._step(f"before {name} {table}")
        self.made.append(f"{name} {table}")
        try:
            return getattr(self._client, name)(**how)
        finally:
            self._step(f"after {name} {table}")


def at_call(wanted: str, then: Callable[[], None]) -> Callable[[str], None]:
    """Return a step that calls `then` at the first call of that name."""
    left = [wanted]

    def step(name: str) -> None:
        if left and name == left[0]:
            left.clear()
            then()

    return step


def die() -> None:
    """End the publisher here."""
    raise Killed


def lose() -> None:
    """Break the connection."""
    raise ConnectionClosedError(endpoint_url="http://glue")
