"""The interface between a commit and an output, a place outside the lake: what an output does, and what it gets.

The commit of the tables calls no output, so no output can delay it. Afterwards, the committed rows are published to
an output in two phases. The swap of the root between the phases is the only decision:

    begin     take the output: an earlier publisher can publish no more, or does no harm if it does
    prepare   before the swap: all that can fail should fail here, and readers of the output see nothing yet
    (swap)    the ledger records that the interval is in progress: from here on, the output may have its rows
    publish   after the swap: make the rows visible, each once, however often it is called
    abort     instead of the swap: remove what `prepare` left

The tables follow the same pattern: begin gives an attempt its prefix, prepare uploads the files and the metadata, the
swap publishes them, and abort is left to gc.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tallystick.format import keys
from tallystick.format.interval import Interval

if TYPE_CHECKING:
    import pyarrow as pa


class Rows(Protocol):
    """The rows of one plan in one table, in an order that never changes."""

    def batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, from row number `start` on. Raises Corrupt if a file is gone or unreadable."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The rows of `plan` for one output and one interval, which replace the rows of `instead_of`.

    Both are uuids of plans. `rows_before` are the rows of `instead_of`; it is empty if nothing was published before.
    `generation` is the number of the plan in its interval. `identity` names the columns that identify a row: the keys
    of a table that aggregates, the lineage of any other table. `report` is the key of the report that lists the files
    of the rows. Another attempt at the same plan has another report, and its rows may differ (for example, if the job
    draws ids).
    """

    pipeline: str
    output: str
    interval: Interval
    generation: int
    plan: keys.PlanId
    identity: tuple[str, ...]
    rows: Rows
    instead_of: keys.PlanId | None
    generation_before: int | None
    rows_before: Rows
    report: keys.ReportKey | None = None

    def __str__(self) -> str:
        return f"output {self.output} of {self.interval}, generation {self.generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The lake and the pipeline of an output. One publisher per lake, pipeline and output name may publish."""

    lake: str
    pipeline: str


class Output(Protocol):
    """A place outside the lake that gets the rows of a table.

    Every method may be called again after a crash at any point, and by two processes at once. The methods raise
    RetryLater if the problem passes with time, and ActionRequired if a person has to act: for example, if a key is
    null or a table is missing.
    """

    def begin(self, scope: Scope) -> None:
        """Take the output for this process. Safe to repeat: the last process that took the output has it."""
        ...

    def prepare(self, publication: Publication) -> None:
        """Check and set aside all that publishing needs, invisible to readers.

        Safe to repeat: a second set replaces the first.
        """
        ...

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Write the rows exactly once, replacing the previous generation.

        `resumed` is True if the publication was already in progress: some or all of the rows may be in the output.
        Safe to repeat: rows that are already there are not sent again.
        """
        ...

    def abort(self, publication: Publication) -> None:
        """Remove what `prepare` left, if the interval was replaced meanwhile or belongs to another publisher.

        Safe to repeat: what is gone stays gone.
        """
        ...

    def close(self) -> None:
        """Close connections. Safe to repeat."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """An object that `prepare` set aside under a name, for one plan of one interval."""

    name: str
    interval: Interval
    plan: keys.PlanId


@runtime_checkable
class Sweeping(Protocol):
    """An output whose `prepare` leaves objects that remain when its process is killed.

    The ledger shows which of them are no longer needed: those whose plan is neither granted nor pending, and never
    will be again.
    """

    def leftovers(self) -> Sequence[Leftover]:
        """Return all objects that were set aside, for any plan. Does not need `begin`."""
        ...

    def sweep(self, leftovers: Sequence[Leftover]) -> None:
        """Remove these objects.

        Safe to repeat: what is gone stays gone. If an object cannot be removed, the next sweep finds it.
        """
        ...


class NoRows:
    """An empty set of rows."""

    def batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield nothing."""
        del start
        return iter(())

    def __len__(self) -> int:
        return 0
