"""From a declared output to one that works: the kinds that come with tallystick, and a user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallystick.connections.calls import HttpSettings, SmtpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.errors import InvalidPipeline
from tallystick.outputs.calls import EmailOutput, HttpOutput
from tallystick.outputs.files import FileOutput, Folder
from tallystick.outputs.kafka import KafkaOutput
from tallystick.outputs.not_installed import NotInstalled
from tallystick.outputs.port import Output
from tallystick.outputs.postgres import PostgresOutput
from tallystick.pipeline import DeclaredOutput
from tallystick.store import Store

Connect = Callable[[str], KafkaSettings]
ConnectPostgres = Callable[[str], PostgresSettings]


def open_output(
    declared: DeclaredOutput,
    *,
    kafka: Connect,
    postgres: ConnectPostgres,
    http: Callable[[str], HttpSettings],
    smtp: Callable[[str], SmtpSettings],
    store: Store,
) -> Output:
    """The output that a declaration stands for; nothing is connected yet.

    `kafka`, `http` and `smtp` resolve a connection by its name; `store` is the lake's, where calls are noted.
    A class of the user's own brings it by its method `open()`. Raises InvalidPipeline where there is none.
    """
    if isinstance(declared, FileOutput):
        return Folder(declared)
    if isinstance(declared, KafkaOutput):
        from tallystick.outputs.kafka.topic import KafkaTopic

        return KafkaTopic(declared, lambda: kafka(declared.kafka))
    if isinstance(declared, PostgresOutput):
        try:
            from tallystick.outputs.postgres.table import PostgresTable
        except ImportError as missing:
            return NotInstalled(declared.name, extra="postgres", why=str(missing))
        return PostgresTable(declared, lambda: postgres(declared.postgres))
    if isinstance(declared, HttpOutput):
        from tallystick.outputs.calls.http import HttpReceiver

        return HttpReceiver(declared, lambda: http(declared.http), store)
    if isinstance(declared, EmailOutput):
        from tallystick.outputs.calls.email import Mailbox

        return Mailbox(declared, lambda: smtp(declared.smtp), store)
    opening: Any = getattr(declared, "open", None)
    if callable(opening):
        opened: Output = opening()
        return opened
    raise InvalidPipeline(
        f"output {declared.name} is declared as {type(declared).__name__}, which tallystick does not know and which has "
        "no method open().",
        next_step="declare one of the kinds in docs/reference/outputs.md, or give the class an open() that returns an "
        "object with begin, prepare, publish, abort and close.",
    )
