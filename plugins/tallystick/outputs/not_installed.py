"""An output whose client library is not installed. It raises when it is used, not when it is opened.

A commit opens its outputs before the swap, and a missing package must not harm the tables.
"""

from __future__ import annotations

from tallystick.errors import SettingsError
from tallystick.outputs.port import Publication, Scope


class NotInstalled:
    """A placeholder for an output that this Python environment cannot serve."""

    def __init__(self, output: str, *, extra: str, why: str) -> None:
        self._error = SettingsError(
            f"output {output}: its client library cannot be loaded: {why}.",
            hint=f"install tallystick[{extra}] where Airflow's tasks and `tally` run; the tables are committed.",
        )

    def begin(self, scope: Scope) -> None:
        """Raise SettingsError. Safe to repeat: it changes nothing."""
        raise self._error

    def prepare(self, publication: Publication) -> None:
        """Raise SettingsError. Safe to repeat: it changes nothing."""
        raise self._error

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Raise SettingsError. Safe to repeat: it changes nothing."""
        raise self._error

    def abort(self, publication: Publication) -> None:
        """Do nothing, because `prepare` sets nothing aside. Safe to repeat."""

    def close(self) -> None:
        """Do nothing, because no connection is open. Safe to repeat."""
