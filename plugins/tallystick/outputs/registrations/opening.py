"""Opens declared registrations: the kinds that tallystick includes, and classes of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.connections.http import HttpSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.settings import SettingsNamed
from tallystick.errors import InvalidPipeline, SettingsError
from tallystick.outputs.registrations.declared import (
    GlueRegistration,
    RestRegistration,
    SqlRegistration,
)
from tallystick.outputs.registrations.port import Pointer, Registrar
from tallystick.pipeline.registrations import DeclaredRegistration


def open_registrar(declared: DeclaredRegistration, *, settings: SettingsNamed) -> Registrar:
    """Return the registrar for a declaration, without connecting to anything.

    `settings` resolves a connection by its name when the registrar connects. If the declaration is a class of the user's
    own, its method `open()` returns the registrar. Raises InvalidPipeline if it has no such method.
    """
    if isinstance(declared, SqlRegistration):
        try:
            from tallystick.outputs.registrations.sql import SqlRegistrar
        except ImportError as missing:
            return RegistrarNotInstalled(declared.name, extra="postgres", why=str(missing))
        return SqlRegistrar(declared, lambda: settings(PostgresSettings, declared.postgres))
    if isinstance(declared, GlueRegistration):
        from tallystick.outputs.registrations.glue import GlueRegistrar

        return GlueRegistrar(declared)
    if isinstance(declared, RestRegistration):
        from tallystick.outputs.registrations.rest import RestRegistrar

        return RestRegistrar(declared, lambda: settings(HttpSettings, declared.http))
    opening: Any = getattr(declared, "open", None)
    if callable(opening):
        opened: Registrar = opening()
        return opened
    raise InvalidPipeline(
        f"registration {declared.name}: expected a known kind of registration or a class with a method open(), found "
        f"{type(declared).__name__}.",
        hint="declare one of the kinds in docs/reference/registrations.md, or add an open() to the class that returns an "
        "object with register and close.",
    )


class RegistrarNotInstalled:
    """A placeholder for a registrar that this Python environment cannot serve. It raises when it is used."""

    def __init__(self, registration: str, *, extra: str, why: str) -> None:
        self._error = SettingsError(
            f"registration {registration}: its client library cannot be loaded: {why}.",
            hint=f"install tallystick[{extra}] where Airflow's tasks and `tally` run; the tables are committed.",
        )

    def register(self, pointers: Sequence[Pointer]) -> Mapping[str, str]:
        """Raise SettingsError. Safe to repeat: it changes nothing."""
        raise self._error

    def close(self) -> None:
        """Do nothing, because no connection is open. Safe to repeat."""
