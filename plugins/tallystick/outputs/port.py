"""What an output does, and what it is given: the port between a commit and a place outside the lake.

The commit of the tables asks no output anything, so none can delay it. What is committed is then brought to an output in
two phases, and the swap of the root between them is the only decision:

    begin     take the output: whoever published before can publish no more, or does no harm
    prepare   before the swap: all that can fail should fail here, and nobody sees anything
    (swap)    the ledger says that the interval is begun: from here on, rows may be out there
    publish   after the swap: make the rows seen, once, however often it is called
    abort     instead of the swap: take away what `prepare` left

The tables themselves are such an output: begin gives an attempt its prefix, prepare uploads the files and the metadata,
the swap publishes them, and abort is left to gc.
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
        """Yield them from row number `start` on. Raises Corrupt where a file is gone or unreadable."""
        ...

    def __len__(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What is to stand in an output for one interval: the rows of `plan`, instead of those of `instead_of`.

    Both are uuids of plans; `rows_before` are the rows of `instead_of`, empty where nothing was published before.
    `generation` is the plan's number in its interval, `identity` the columns that tell rows apart: the keys of a table
    that aggregates, the lineage of any other. `report` is the key of the report that lists the rows' files: another
    attempt at the same plan has another one, and its rows may differ (a job that draws ids).
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
    """Whose output it is: one per lake, pipeline and output name may publish."""

    lake: str
    pipeline: str


class Output(Protocol):
    """A place outside the lake. Every method may be called again after a crash at any point, and twice at once.

    They raise RetryLater where time mends it, Ask where a person has to: a key that is null, a table that is not there.
    """

    def begin(self, scope: Scope) -> None:
        """Take the output for this process. Safe to repeat: the last one that took it has it."""
        ...

    def prepare(self, publication: Publication) -> None:
        """Check and set aside all that publishing needs, unseen. Safe to repeat: a second set takes the first's place."""
        ...

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Make the rows stand in the output, each once, instead of those before.

        `resumed`: somebody had begun it before: some rows may be there, or all. Safe to repeat: what is there already is
        not sent again.
        """
        ...

    def abort(self, publication: Publication) -> None:
        """Take away what `prepare` left, if the interval was replaced meanwhile, or is another publisher's.

        Safe to repeat: what is gone stays so.
        """
        ...

    def close(self) -> None:
        """Let go of connections. Safe to repeat."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What `prepare` has set aside under a name, for one plan of one interval."""

    name: str
    interval: Interval
    plan: keys.PlanId


@runtime_checkable
class Sweeping(Protocol):
    """An output whose `prepare` leaves things that outlive a process that was killed.

    The ledger says which of them are needed no more: the plan is neither granted nor pending, and never will be again.
    """

    def leftovers(self) -> Sequence[Leftover]:
        """All that was set aside, for whichever plan. Needs no `begin`."""
        ...

    def sweep(self, leftovers: Sequence[Leftover]) -> None:
        """Take these away. Safe to repeat: what is gone stays so; what could not be taken is found by the next one."""
        ...


class NoRows:
    """No rows at all."""

    def batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield nothing."""
        del start
        return iter(())

    def __len__(self) -> int:
        return 0
