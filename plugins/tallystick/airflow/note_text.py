"""How notes are put together on a run: pure, and light enough for the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

NOTE = "tallystick_note"
"""The XCom that the listener copies to the run's note."""
OFF = "TALLYSTICK_RUN_NOTES"
"""Set to 0 in the scheduler's environment, the runs get no notes."""
NOTE_MAX = 1000
"""How many characters Airflow's column takes."""

_MARK = "tallystick: "
_CUT = " ..."
_ROOM_MIN = 40


def merged(present: str | None, notes: Sequence[str]) -> str:
    """The run's note with our lines at its end. Earlier ones of ours are replaced; all that a person wrote stays."""
    lines = (present or "").splitlines()
    persons = "\n".join(line for line in lines if not line.startswith(_MARK)).strip()
    ours = "\n\n".join(_MARK + _plain(note) for note in notes)
    before = f"{persons}\n\n" if persons else ""
    room = NOTE_MAX - len(before)
    if len(ours) <= room:
        return before + ours
    return persons if room < _ROOM_MIN else before + ours[: room - len(_CUT)] + _CUT


def _plain(note: str) -> str:
    """One line, as the UI shows it, which reads Markdown: no link, no control character."""
    line = " ".join(note.split())
    return "".join(c for c in line if c.isprintable()).replace("](", "] (")
