"""Builds the note of a run: pure functions without imports that would slow down the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

NOTE = "tallystick_note"
"""The XCom that the listener copies to the run's note."""
OFF = "TALLYSTICK_RUN_NOTES"
"""The variable of the scheduler's environment: if it is 0, runs get no notes."""
NOTE_MAX = 1000
"""The size of Airflow's column for a note, in characters."""

_MARK = "tallystick: "
_CUT = " ..."
_ROOM_MIN = 40


def merged(present: str | None, notes: Sequence[str]) -> str:
    """Return the run's note with `notes` at its end. They replace earlier notes of tallystick; text by a person stays."""
    lines = (present or "").splitlines()
    persons = "\n".join(line for line in lines if not line.startswith(_MARK)).strip()
    ours = "\n\n".join(_MARK + _plain(note) for note in notes)
    before = f"{persons}\n\n" if persons else ""
    room = NOTE_MAX - len(before)
    if len(ours) <= room:
        return before + ours
    return persons if room < _ROOM_MIN else before + ours[: room - len(_CUT)] + _CUT


def _plain(note: str) -> str:
    """Return the note as one line without links and control characters: the UI renders Markdown."""
    line = " ".join(note.split())
    return "".join(c for c in line if c.isprintable()).replace("](", "] (")
