"""The slot of an output in a ledger entry, and the target of an output in the root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.codec import StoredValue

TARGET_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSlot(StoredValue):
    """The state of one interval in one output, as uuids of plans.

    `wanted`: the plan whose rows the output must contain. `in_progress`: a plan whose rows may be there in part.
    `published`: if `in_progress` is None, the plan whose rows are there, all of them and no others.
    """

    wanted: keys.PlanId
    in_progress: keys.PlanId | None = None
    published: keys.PlanId | None = None

    def __post_init__(self) -> None:
        for uuid in (self.wanted, self.in_progress, self.published):
            if uuid is not None:
                keys.check_uuid(uuid)
        if self.in_progress is not None and self.in_progress == self.published:
            raise ValueError(f"plan {self.in_progress} is both in progress and published")

    @property
    def pending(self) -> bool:
        """True if something is left to publish."""
        return self.in_progress is not None or self.wanted != self.published

    @property
    def may_have_rows(self) -> bool:
        """True if the output has rows of any plan, or may have."""
        return self.in_progress is not None or self.published is not None

    @property
    def needed(self) -> frozenset[keys.PlanId]:
        """The plans whose rows a pending publication reads: those that it sends, and those that it replaces."""
        if not self.pending:
            return frozenset()
        return frozenset(
            u for u in (self.wanted, self.in_progress, self.published) if u is not None
        )


def check_target(target: str) -> str:
    """Return the target of an output, as the root records it; raises ValueError if it is empty, long or unprintable."""
    if not 0 < len(target) <= TARGET_MAX or not target.isprintable():
        raise ValueError(f"target of an output: expected at most {TARGET_MAX} printable characters")
    return target


def check_slots(named: Mapping[str, object]) -> None:
    """Refuse an invalid output name; raises InvalidPipeline."""
    for name in named:
        keys.check_name(name, "output")
