"""Checks schema registries and databases: they answer, and accept the login."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.settings import SettingsNamed
from tallystick.errors import RegistryUnavailable, SettingsError
from tallystick.operations.doctor.check import Area, DoctorCheck
from tallystick.registry.client import RegistryClient

ANSWER_S = 4
# The hints of the errors are for tasks, which try again.
_REACHABLE = "check that the server runs, and accepts connections from this machine."


def registry_checks(connection: str, settings_named: SettingsNamed) -> Iterator[DoctorCheck]:
    """Yield the check of a schema registry: it lists its subjects. Raises the errors of the settings, and refusals."""
    area = Area("registry")
    settings = settings_named(RegistrySettings, connection)
    quick = replace(settings, timeout_s=min(settings.timeout_s, ANSWER_S))
    try:
        subjects = RegistryClient(quick, patience_s=0).subjects()
    except RegistryUnavailable as error:
        yield area.error(connection, error.message, _REACHABLE)
    else:
        yield area.ok(connection, f"{settings.endpoint} has {len(subjects):,} subjects")


def postgres_checks(connection: str, settings_named: SettingsNamed) -> Iterator[DoctorCheck]:
    """Yield the check of a database: a login and SELECT 1, as a publisher logs in. Raises the errors of the settings."""
    area = Area("outputs")
    name = f"postgres {connection}"
    settings = settings_named(PostgresSettings, connection)
    try:
        from psycopg import sql

        from tallystick.outputs.postgres.session import Session, translated
    except ImportError as error:
        yield area.error(
            name,
            f"the client library cannot be loaded: {type(error).__name__}",
            "install tallystick[postgres] where Airflow's tasks and `tally` run.",
        )
        return
    quick = replace(
        settings,
        connect_timeout_s=min(settings.connect_timeout_s, ANSWER_S),
        statement_timeout_s=min(settings.statement_timeout_s, ANSWER_S),
        lock_timeout_s=min(settings.lock_timeout_s, ANSWER_S),
    )
    try:
        with (
            translated(f"connection {connection}", settings.endpoint, settings.secrets),
            closing(Session(quick, output="", where=settings.endpoint)) as session,
        ):
            session.one("doctor", sql.SQL("SELECT 1"))
    except SettingsError as error:
        yield area.of_error(name, error)
    except Exception as error:  # noqa: BLE001 - any other one means that the login failed
        message = getattr(error, "message", type(error).__name__)
        yield area.error(name, message, _REACHABLE)
    else:
        yield area.ok(name, f"{settings.endpoint} accepts user {settings.user}")
