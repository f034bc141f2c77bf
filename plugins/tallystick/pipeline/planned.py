"""The part of a declaration that a plan contains: all that a Spark job needs of it, except secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tallystick.format.codec import StoredObject, StoredValue
from tallystick.pipeline.columns import Column
from tallystick.pipeline.formats import Format
from tallystick.pipeline.lookback import Lookback
from tallystick.pipeline.outputs import PlannedOutput
from tallystick.pipeline.tables import Table
from tallystick.pipeline.topics import headers_column


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec(StoredValue):
    """A topic, the formats of its values and keys, and the name of the column of headers; a default is filled in."""

    name: str
    decode: Format
    key: Format | None
    headers: str | None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the topic's records: those of the values, then those of the keys, then the headers."""
        of_key = () if self.key is None else self.key.columns
        of_headers = () if self.headers is None else (headers_column(self.headers),)
        return (*self.decode.columns, *of_key, *of_headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec(StoredObject):
    """A pipeline in the form that a plan contains: without the fields that only planning uses (lateness, `begin`)."""

    FORMAT: ClassVar[str] = "tallystick.pipeline/1"

    name: str
    warehouse: str
    job: str
    kafka: str
    records_per_task: int
    topics: tuple[TopicSpec, ...]
    tables: tuple[Table, ...]
    outputs: tuple[PlannedOutput, ...]
    lookback: Lookback | None
    max_dead_letters: int | str | None
    rows_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsSpec(StoredValue):
    """Only the outputs of a pipeline's spec."""

    outputs: tuple[PlannedOutput, ...]
