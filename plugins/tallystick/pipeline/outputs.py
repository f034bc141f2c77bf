"""Outputs as a plan knows them: places outside the lake that get the rows of one of its tables.

What is declared in a DAG file is one of the kinds in `tallystick.outputs`, or a class of the user's own with these
fields. A plan carries no more of it than its name, table and target, and what a replaced interval means to it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.outputs import TARGET_MAX
from tallystick.pipeline.columns import refuse

# Receivers of calls hold nothing whose place another row could take, and keys name the output that a call is of.
_MANY = ("http:", "smtp:")
Replaced = Literal["correct", "compensate", "once", "refuse"]
REPLACED: tuple[Replaced, ...] = get_args(Replaced)


class DeclaredOutput(Protocol):
    """What a pipeline declares of an output.

    `replaced`: what a replacement of a published interval means. `correct`: more rows, which name the generation and the
    row that they correct; `compensate`: what is there is changed until it holds the new rows and nothing else; `once`: a
    key that was sent stays as it was sent, keys that are new are sent; `refuse`: such an interval is not replaced. Never
    a silent second send.
    """

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        ...

    @property
    def table(self) -> str:
        """The table whose rows it gets."""
        ...

    @property
    def replaced(self) -> Replaced:
        """What a replacement means."""
        ...

    @property
    def target(self) -> str:
        """What the name stands for, for life; without secrets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOutput(StoredValue):
    """An output as a plan carries it."""

    name: str
    table: str
    replaced: Replaced
    target: str

    def __post_init__(self) -> None:
        keys.check_name(self.name, "output")
        if self.replaced not in REPLACED:
            raise refuse(
                f"output {self.name}: replaced={self.replaced!r} is not allowed.",
                f"use one of {', '.join(REPLACED)}.",
            )
        if not 0 < len(self.target) <= TARGET_MAX or not self.target.isprintable():
            raise refuse(
                f"output {self.name} has a target of {len(self.target)} characters, or one that cannot be printed.",
                f"use 1 to {TARGET_MAX} printable ones.",
            )
        # A plan, a log and Airflow's database show it.
        if "@" in self.target:
            raise refuse(
                f"the target of output {self.name} has an @, as if a user or a key stood before it.",
                "name a connection; passwords belong into its environment variables.",
            )


def planned(declared: DeclaredOutput) -> PlannedOutput:
    """What a plan carries of a declared output; raises InvalidPipeline."""
    return PlannedOutput(
        name=declared.name,
        table=declared.table,
        replaced=declared.replaced,
        target=declared.target,
    )


def check_outputs(outputs: Collection[PlannedOutput], tables: Collection[str]) -> None:
    """Refuse a name that stands twice and a table that is not declared; raises InvalidPipeline."""
    names = [o.name for o in outputs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise refuse(f"output {twice[0]!r} is declared twice.", "remove one, or rename it.")
    for output in outputs:
        if output.table not in tables:
            raise refuse(
                f"output {output.name} is to get the rows of {output.table!r}, which is no table.",
                f"name one of {', '.join(sorted(tables))}.",
            )


def check_targets(outputs: Collection[DeclaredOutput]) -> None:
    """Refuse one target of two outputs; raises InvalidPipeline.

    What a plan carries is not asked: its rows are to be read and published, whatever rules it was declared under.
    """
    by_target: dict[str, str] = {}
    for output in outputs:
        if isinstance(output, PlannedOutput) or output.target.startswith(_MANY):
            continue
        first = by_target.setdefault(output.target, output.name)
        if first != output.name:
            raise refuse(
                f"outputs {first} and {output.name} have one target, {output.target}.",
                "give each a place of its own: the one could not tell its rows from the other's.",
            )
