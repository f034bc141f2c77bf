"""Outputs in the form that a plan contains: places outside the lake that get the rows of one table.

A DAG file declares one of the kinds in `tallystick.outputs`, or a user's own class with these fields. A plan contains
only the output's name, table and target, and the meaning of a replaced interval.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.outputs import TARGET_MAX
from tallystick.pipeline.columns import refuse

# Two outputs may share a receiver of calls: no row there can take the place of another, and a call's key contains the
# output's name.
_MANY = ("http:", "smtp:")
Replaced = Literal["correct", "compensate", "once", "refuse"]
REPLACED: tuple[Replaced, ...] = get_args(Replaced)


class DeclaredOutput(Protocol):
    """An output as a pipeline declares it.

    `replaced`: the effect of a replacement of a published interval. `correct`: more rows are sent, which name the
    generation and the row that they correct. `compensate`: the rows in the output are changed until it contains
    exactly the new rows. `once`: keys that were sent stay unchanged, and only new keys are sent. `refuse`: such an
    interval is not replaced. No row is silently sent a second time.
    """

    @property
    def name(self) -> str:
        """The output's name in the ledger."""
        ...

    @property
    def table(self) -> str:
        """The table whose rows the output gets."""
        ...

    @property
    def replaced(self) -> Replaced:
        """The effect of a replacement."""
        ...

    @property
    def target(self) -> str:
        """The target that the name always means; it contains no secrets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOutput(StoredValue):
    """An output in the form that a plan contains."""

    name: str
    table: str
    replaced: Replaced
    target: str

    def __post_init__(self) -> None:
        keys.check_name(self.name, "output")
        if self.replaced not in REPLACED:
            raise refuse(
                f"output {self.name}: unknown replaced={self.replaced!r}.",
                f"use one of {', '.join(REPLACED)}.",
            )
        if not 0 < len(self.target) <= TARGET_MAX or not self.target.isprintable():
            raise refuse(
                f"output {self.name}: expected a target of 1 to {TARGET_MAX} printable characters, found "
                f"{len(self.target)} "
                "characters or one that is not printable.",
                f"use 1 to {TARGET_MAX} printable characters.",
            )
        # Plans, logs and Airflow's database contain the target.
        if "@" in self.target:
            raise refuse(
                f"target of output {self.name}: expected no @ (it may follow a user name or a password), found one.",
                "name a connection; set passwords in its environment variables.",
            )


def planned(declared: DeclaredOutput) -> PlannedOutput:
    """Return a declared output in the form that a plan contains; raises InvalidPipeline."""
    return PlannedOutput(
        name=declared.name,
        table=declared.table,
        replaced=declared.replaced,
        target=declared.target,
    )


def check_outputs(outputs: Collection[PlannedOutput], tables: Collection[str]) -> None:
    """Refuse a name that is declared twice, and a table that is not declared; raises InvalidPipeline."""
    names = [o.name for o in outputs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise refuse(
            f"expected unique output names, found {twice[0]!r} twice.",
            "remove or rename one of the two.",
        )
    for output in outputs:
        if output.table not in tables:
            raise refuse(
                f"output {output.name}: expected a table of the pipeline, found {output.table!r}.",
                f"use one of {', '.join(sorted(tables))}.",
            )


def check_targets(outputs: Collection[DeclaredOutput]) -> None:
    """Refuse two outputs with the same target; raises InvalidPipeline.

    The outputs of a plan are not checked: their rows must still be read and published, even if the rules for declarations
    have changed.
    """
    by_target: dict[str, str] = {}
    for output in outputs:
        if isinstance(output, PlannedOutput) or output.target.startswith(_MANY):
            continue
        first = by_target.setdefault(output.target, output.name)
        if first != output.name:
            raise refuse(
                f"outputs {first} and {output.name}: expected different targets, found {output.target} twice.",
                "give each output a target of its own: in a shared target their rows cannot be distinguished.",
            )
