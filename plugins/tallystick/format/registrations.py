"""The state of a registration in the root: which version of the tables a catalog outside the lake has."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.outputs import check_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(StoredValue):
    """The state of one registration.

    `target`: what its name always means. `since`: the root's last record when the registration was declared; no pointer
    that was set since then is older. `registered`: the last record to whose version all pointers were set, or to a later
    one; None if there is none yet. `declared`: False if the pipeline no longer has the registration; then nothing is
    pending for it.
    """

    target: str
    since: keys.RecordKey | None = None
    registered: keys.RecordKey | None = None
    declared: bool = True

    def __post_init__(self) -> None:
        check_target(self.target)
        for record in (self.since, self.registered):
            if record is not None:
                keys.check_record(record)

    @property
    def oldest(self) -> keys.RecordKey | None:
        """The record of the oldest version to which a pointer may be set; None if it may be any version."""
        return self.registered or self.since
