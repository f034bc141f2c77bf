"""The rounds played so far, stored in docs/reference/chaos.json, and their table in guarantees.md.

Thirty rounds of each nemesis take hours, so they are played in several courses; each course adds its lines.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from chaos.table import Line

ROOT = Path(__file__).resolve().parents[2]
PLAYED = ROOT / "docs" / "reference" / "chaos.json"
PAGE = ROOT / "docs" / "reference" / "guarantees.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
HEAD = ("nemesis", "rounds", "records", "duplicates", "missing", "played on", "seeds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The rounds of one nemesis in one course. `seeds`: `[first, last]`, both included; `commit` of the working tree."""

    nemesis: str
    date: str
    commit: str
    seeds: tuple[int, int]
    rounds: int
    records: int
    duplicates: int
    missing: int
    missed: int


def played_of(lines: Iterable[Line], *, date: str, commit: str) -> list[Played]:
    """Return the lines that a course adds: the nemeses of which a round was completed."""
    return [
        Played(
            nemesis=line.nemesis,
            date=date,
            commit=commit,
            seeds=(line.first_seed, line.last_seed),
            rounds=line.rounds,
            records=line.records,
            duplicates=line.duplicates,
            missing=line.missing,
            missed=line.missed,
        )
        for line in lines
        if line.rounds
    ]


def read(file: Path = PLAYED) -> list[Played]:
    """Return all played rounds; none if the file does not exist."""
    if not file.exists():
        return []
    names = {field.name for field in fields(Played)}
    found: list[Played] = []
    for value in json.loads(file.read_text()):
        if set(value) != names:
            raise ValueError(f"{file}: expected the fields {sorted(names)}, found {value}")
        first, last = value.pop("seeds")
        found.append(Played(seeds=(first, last), **value))
    return found


def keep(added: Iterable[Played], file: Path = PLAYED, page: Path = PAGE) -> None:
    """Add rounds to the file, and write the table of the page. Safe to repeat: lines in the file are not added again."""
    # Two courses may run concurrently, each in its own workspace.
    with page.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = read(file)
        known += [line for line in added if line not in known]
        lines = [json.dumps(asdict(line)) for line in known]
        file.write_text("\n".join(["[", ",\n".join(lines), "]", ""] if lines else ["[]", ""]))
        text = page.read_text()
        head, _, rest = text.partition(BEGIN)
        _, _, tail = rest.partition(END)
        page.write_text(f"{head}{BEGIN}\n{as_markdown(known)}{END}{tail}")


def shown(page: Path = PAGE) -> str:
    """Return the table of the page."""
    return page.read_text().partition(BEGIN)[2].partition(END)[0].lstrip("\n")


def as_markdown(played: Iterable[Played]) -> str:
    """Return a row per nemesis, by name, and a last one for all."""
    by_name: dict[str, list[Played]] = {}
    lines = list(played)
    for line in lines:
        by_name.setdefault(line.nemesis, []).append(line)
    rows: list[tuple[str, ...]] = [HEAD, ("---",) * len(HEAD)]
    rows += [_row(f"`{name}`", by_name[name]) for name in sorted(by_name)]
    rows.append((*_row("all", lines)[:-1], ""))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, lines: list[Played]) -> tuple[str, ...]:
    def total(field: str) -> Any:
        return sum(getattr(line, field) for line in lines)

    dates = sorted({line.date for line in lines})
    seeds = ", ".join(
        str(a) if a == b else f"{a}-{b}" for a, b in sorted({line.seeds for line in lines})
    )
    on = "" if not dates else dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    sums = (f"{total(f):,}" for f in ("rounds", "records", "duplicates", "missing"))
    return (name, *sums, on, seeds)
