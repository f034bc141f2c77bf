"""An output whose client library is not installed: it says so where it is used, and never where it is opened.

A commit opens its outputs before the swap; a package that is missing must not harm the tables.
"""

from __future__ import annotations

from tallystick.errors import SettingsError
from tallystick.outputs.port import Publication, Scope


class NotInstalled:
    """Stands for an output that this Python cannot serve."""

    def __init__(self, output: str, *, extra: str, why: str) -> None:
        self._error = SettingsError(
            f"output {output}: its client library cannot be loaded: {why}.",
            hint=f"install tallystick[{extra}] where Airflow's tasks and `tally` run; the tables are committed.",
        )

    def begin(self, scope: Scope) -> None:
        """Raise SettingsError. Safe to repeat: nothing is done."""
        raise self._error

    def prepare(self, publication: Publication) -> None:
        """Raise SettingsError. Safe to repeat: nothing is done."""
        raise self._error

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Raise SettingsError. Safe to repeat: nothing is done."""
        raise self._error

    def abort(self, publication: Publication) -> None:
        """Nothing was set aside. Safe to repeat."""

    def close(self) -> None:
        """Nothing is held. Safe to repeat."""
