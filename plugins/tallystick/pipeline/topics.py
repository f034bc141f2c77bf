"""Topics as a user declares them, and how their values are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tallystick.format import keys
from tallystick.pipeline.columns import Column, refuse, unique


@dataclass(frozen=True, slots=True)
class Json:
    """Values are JSON objects (RFC 8259, UTF-8); rows that do not fit the columns exactly become dead letters.

    `tombstones`: what a null value is: a dead letter (`dead`), or a row whose columns are all null (`keep`, which needs
    every column to be optional).
    """

    columns: Sequence[Column]
    tombstones: Literal["dead", "keep"] = "dead"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", unique(self.columns, "decode"))
        if self.tombstones not in ("dead", "keep"):
            raise refuse(f"tombstones={self.tombstones!r} is not allowed.", "use 'dead' or 'keep'.")
        if self.tombstones == "keep" and any(c.required for c in self.columns):
            raise refuse(
                "tombstones='keep' needs columns that may all be null.",
                "declare them required=False, or use 'dead'.",
            )


@dataclass(frozen=True, slots=True)
class Topic:
    """A Kafka topic and how its values are read. `decode=None`: the columns of the pipeline's first table."""

    name: str
    decode: Json | None = None

    def __post_init__(self) -> None:
        keys.check_topic(self.name)
        if self.decode is not None and not isinstance(self.decode, Json):
            raise refuse(
                f"topic {self.name}: decode={self.decode!r} is not known.",
                "values are JSON objects: use Json([Column(...), ...]), or leave decode out for the columns of the "
                "first table. Avro, Protobuf and other formats are not read.",
            )
