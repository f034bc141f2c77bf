"""Opens declared outputs: the kinds that tallystick includes, and classes of the user's own."""

from __future__ import annotations

from typing import Any

from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.settings import SettingsNamed
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import InvalidPipeline
from tallystick.outputs.calls import EmailOutput, HttpOutput
from tallystick.outputs.files import FileOutput, Folder
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.not_installed import NotInstalled
from tallystick.outputs.port import Output
from tallystick.outputs.postgres import PostgresOutput
from tallystick.pipeline import DeclaredOutput
from tallystick.store import Store


def open_output(
    declared: DeclaredOutput,
    *,
    settings: SettingsNamed,
    store: Store,
) -> Output:
    """Return the output for a declaration, without connecting to anything.

    `settings` resolves a connection by its name when the output connects. `store` is the lake's: receivers of calls
    write their notes to it. If the declaration is a class of the user's own, its method `open()` returns the output.
    Raises InvalidPipeline if it has no such method.
    """
    if isinstance(declared, FileOutput):
        return Folder(declared)
    if isinstance(declared, KafkaOutput):
        from tallystick.outputs.kafka.topic import KafkaTopic

        return KafkaTopic(declared, lambda: settings(KafkaSettings, declared.kafka))
    if isinstance(declared, PostgresOutput):
        try:
            from tallystick.outputs.postgres.table import PostgresTable
        except ImportError as missing:
            return NotInstalled(declared.name, extra="postgres", why=str(missing))
        return PostgresTable(declared, lambda: settings(PostgresSettings, declared.postgres))
    if isinstance(declared, HttpOutput):
        from tallystick.outputs.calls.http import HttpReceiver

        return HttpReceiver(declared, lambda: settings(HttpSettings, declared.http), store)
    if isinstance(declared, EmailOutput):
        from tallystick.outputs.calls.email import Mailbox

        return Mailbox(declared, lambda: settings(SmtpSettings, declared.smtp), store)
    opening: Any = getattr(declared, "open", None)
    if callable(opening):
        opened: Output = opening()
        return opened
    raise InvalidPipeline(
        f"output {declared.name}: expected a known kind of output or a class with a method open(), found "
        f"{type(declared).__name__}.",
        hint="declare one of the kinds in docs/reference/outputs.md, or add an open() to the class that returns an "
        "object with begin, prepare, publish, abort and close.",
    )
