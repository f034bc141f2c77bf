"""Outputs: places outside the lake that get each row of a committed table exactly once, also after reruns.

A DAG file imports the kinds from here. `port` defines what an output does and what it gets; the other modules are the
kinds that tallystick includes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.runtime.lazy import lazy

if TYPE_CHECKING:
    from tallystick.outputs.calls import EmailOutput as EmailOutput
    from tallystick.outputs.calls import HttpOutput as HttpOutput
    from tallystick.outputs.files import FileOutput as FileOutput
    from tallystick.outputs.kafka import KafkaOutput as KafkaOutput
    from tallystick.outputs.postgres import PostgresOutput as PostgresOutput
    from tallystick.outputs.registrations import GlueRegistration as GlueRegistration
    from tallystick.outputs.registrations import RestRegistration as RestRegistration
    from tallystick.outputs.registrations import SqlRegistration as SqlRegistration

__all__ = [
    "EmailOutput",
    "FileOutput",
    "GlueRegistration",
    "HttpOutput",
    "KafkaOutput",
    "PostgresOutput",
    "RestRegistration",
    "SqlRegistration",
]

__getattr__ = lazy(
    __name__,
    {
        "EmailOutput": "tallystick.outputs.calls",
        "FileOutput": "tallystick.outputs.files",
        "GlueRegistration": "tallystick.outputs.registrations",
        "HttpOutput": "tallystick.outputs.calls",
        "KafkaOutput": "tallystick.outputs.kafka",
        "PostgresOutput": "tallystick.outputs.postgres",
        "RestRegistration": "tallystick.outputs.registrations",
        "SqlRegistration": "tallystick.outputs.registrations",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
