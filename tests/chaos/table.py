"""The table at the end of a run: the results of each nemesis, its rounds and seeds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from oracle.audit import Finding


@dataclass(slots=True, kw_only=True)
class Line:
    """The rounds of one nemesis so far. `missed`: rounds whose moment did not occur, which are not counted otherwise.

    `compactions`: those that were published in its rounds.
    """

    nemesis: str
    what: str
    first_seed: int
    last_seed: int
    rounds: int = 0
    records: int = 0
    duplicates: int = 0
    missing: int = 0
    missed: int = 0
    compactions: int = 0
    elapsed_s: float = 0.0
    not_run: str = ""

    @property
    def seeds(self) -> str:
        """The seeds of its rounds."""
        if self.first_seed == self.last_seed:
            return str(self.first_seed)
        return f"{self.first_seed}-{self.last_seed}"

    def add(self, finding: Finding, seed: int, elapsed_s: float, *, compactions: int = 0) -> None:
        """Count one audited round."""
        self.rounds += 1
        self.compactions += compactions
        self.records += finding.records
        self.duplicates += finding.duplicates
        self.missing += finding.missing
        self.last_seed = max(self.last_seed, seed)
        self.elapsed_s += elapsed_s


_SUMMED = ("rounds", "records", "duplicates", "missing", "missed", "compactions", "elapsed_s")
HEAD = ("nemesis", "rounds", "records", "duplicates", "missing", "missed", "s/round", "seeds")


def _cells(line: Line) -> tuple[str, ...]:
    if line.not_run:
        return (line.nemesis, "0", f"not run: {line.not_run}", "", "", "", "", "")
    pace = f"{line.elapsed_s / line.rounds:.0f}" if line.rounds else "-"
    return (
        line.nemesis,
        str(line.rounds),
        f"{line.records:,}",
        str(line.duplicates),
        str(line.missing),
        str(line.missed),
        pace,
        line.seeds,
    )


def as_text(lines: list[Line]) -> str:
    """Render the table for a terminal, in at most 100 columns."""
    rows = [HEAD, *map(_cells, lines), _cells(_sum(lines))]
    widths = [
        max(len(row[i]) for row in rows if not row[2].startswith("not run")) for i in range(8)
    ]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, 7) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def as_markdown(lines: list[Line]) -> str:
    """Render the table as Markdown."""
    rows = [("what was done to a run", *HEAD)]
    rows += [(line.what, *_cells(line)) for line in lines]
    rows += [("", *_cells(_sum(lines)))]
    columns = [0, 1, 2, 3, 4, 5, 8]
    text = ["| " + " | ".join(row[i] for i in columns) + " |" for row in rows]
    return "\n".join([text[0], "|" + " --- |" * len(columns), *text[1:]]) + "\n"


def write(path: Path, lines: list[Line], *, now: datetime | None = None) -> None:
    """Write the table: as JSON if the name ends so, else as Markdown. Safe to repeat: the file is replaced."""
    if path.suffix == ".json":
        day = (now or datetime.now(UTC)).date().isoformat()
        body = json.dumps({"date": day, "lines": [asdict(line) for line in lines]}, indent=2) + "\n"
    else:
        body = as_markdown(lines)
    path.write_text(body)


def _sum(lines: list[Line]) -> Line:
    total = Line(nemesis="all", what="", first_seed=0, last_seed=0)
    for line in lines:
        for name in _SUMMED:
            setattr(total, name, getattr(total, name) + getattr(line, name))
    ran = [line for line in lines if not line.not_run]
    total.first_seed = min((line.first_seed for line in ran), default=0)
    total.last_seed = max((line.last_seed for line in ran), default=0)
    return total
