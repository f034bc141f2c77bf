"""The table of a bundle: raw figures with their range, and ratios to the best plain Spark of the same round.

python -m bench.whole_job.report FILE    # as Markdown
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.whole_job.speed import FIELD

BASE = "spark-best"
NOISY = 0.05
MIB = 1 << 20
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median, the smallest and the largest of some figures."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: Iterable[float]) -> Spread | None:
        """Return the spread of the figures, None if there are none."""
        values = sorted(figures)
        if not values:
            return None
        return cls(middle=median(values), least=values[0], most=values[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderLine:
    """The figures of one contender in one case and size."""

    contender: str
    runs: int
    failed: int
    noisy: int
    cpu_s: Spread | None
    main_cpu_s: Spread | None
    wall_s: Spread | None
    memory_bytes: float
    requests: float
    written_bytes: float
    rest_bytes: float
    ratio: Spread | None
    main_ratio: Spread | None
    wall_ratio: Spread | None


def cpu_s(run: Json) -> float:
    """Return the CPU seconds of all steps of a run."""
    return sum(float(step["cpu_s"]) for step in run["steps"])


def main_cpu_s(run: Json) -> float:
    """Return the CPU seconds of the main steps: of tallystick, those of stage."""
    return sum(float(step["cpu_s"]) for step in run["steps"] if step["main"])


def wall_s(run: Json) -> float:
    """Return the seconds of all steps of a run."""
    return sum(float(step["wall_s"]) for step in run["steps"])


def is_noisy(run: Json, cores: int) -> bool:
    """Return True if other programs used more than 5 % of the machine during the run."""
    foreign = sum(float(step["foreign_s"]) + float(step["stolen_s"]) for step in run["steps"])
    return foreign > NOISY * cores * wall_s(run)


def lines_of(
    bundle: Json, case: str, size: str, *, base: Sequence[str] = (BASE,)
) -> list[ContenderLine]:
    """Return a line per contender, the cheapest first. Runs whose check failed give no figure.

    `base`: the contenders with the better of which the ratios are made, round by round.
    """
    runs = [r for r in bundle["runs"] if r["case"] == case and r["size"] == size]
    names = sorted({r["contender"] for r in runs})
    bases = [r for r in runs if r["contender"] in base and r["ok"]]
    cores = bundle["machine"]["cores"]
    found = [
        _line(name, [r for r in runs if r["contender"] == name], bases, cores) for name in names
    ]
    return sorted(found, key=lambda one: one.cpu_s.middle if one.cpu_s else float("inf"))


def _line(name: str, own: Sequence[Json], bases: Sequence[Json], cores: int) -> ContenderLine:
    good = [r for r in own if r["ok"]]

    def middle(figure: Callable[[Json], float]) -> float:
        return median([figure(r) for r in good]) if good else 0.0

    return ContenderLine(
        contender=name,
        runs=len(own),
        failed=len(own) - len(good),
        noisy=sum(is_noisy(r, cores) for r in good),
        cpu_s=Spread.of(map(cpu_s, good)),
        main_cpu_s=Spread.of(map(main_cpu_s, good)),
        wall_s=Spread.of(map(wall_s, good)),
        memory_bytes=max((max(s["memory_bytes"] for s in r["steps"]) for r in good), default=0),
        requests=middle(lambda r: float(sum(r["s3"]["requests"].values()))),
        written_bytes=middle(lambda r: float(r["s3"]["received"])),
        rest_bytes=middle(lambda r: float(r["rest_bytes"])),
        ratio=_ratio(good, bases, cpu_s),
        main_ratio=_ratio(good, bases, main_cpu_s),
        wall_ratio=_ratio(good, bases, wall_s),
    )


def _ratio(
    good: Sequence[Json], bases: Sequence[Json], figure: Callable[[Json], float]
) -> Spread | None:
    """Return how many times the figure of a run is in the least of the bases of the same round."""
    least: dict[int, float] = {}
    for run in bases:
        least[run["round"]] = min(figure(run), least.get(run["round"], float("inf")))
    return Spread.of(least[r["round"]] / figure(r) for r in good if r["round"] in least)


def marginal(bundle: Json, case: str) -> dict[str, float]:
    """Return CPU seconds per further million records by contender, from the medians of the two sizes."""
    sizes = bundle["settings"]["records"]
    more = (sizes["full"] - sizes["small"]) / 1e6
    small = {one.contender: one.cpu_s for one in lines_of(bundle, case, "small")}
    return {
        one.contender: (one.cpu_s.middle - before.middle) / more
        for one in lines_of(bundle, case, "full")
        if one.cpu_s is not None and (before := small.get(one.contender)) is not None and more > 0
    }


def least_rows(bundle: Json, case: str) -> list[list[str]]:
    """Return the header and a row per contender with the least CPU seconds of all rounds, and ratios between these.

    Other programs on a processor only add to the CPU time of a run, so the least is what depends least on them.
    """
    records = bundle["settings"]["records"]
    more = (records["full"] - records["small"]) / 1e6
    full, small = _least(bundle, case, "full"), _least(bundle, case, "small")
    further = {
        name: (full[name] - small[name]) / more for name in full if name in small and more > 0
    }
    rows = [["least of all rounds", "CPU-s", "x", "small: CPU-s", "x", "CPU-s/M", "x"]]
    for name in sorted(full, key=lambda one: full[one]):
        cells = [name]
        for found in (full, small, further):
            cells.append(f"{found[name]:.2f}" if name in found else "-")
            has_ratio = name in found and BASE in found and found[name] > 0
            cells.append(f"{found[BASE] / found[name]:.1f}" if has_ratio else "-")
        rows.append(cells)
    return rows


def _least(bundle: Json, case: str, size: str) -> dict[str, float]:
    return {
        one.contender: one.cpu_s.least
        for one in lines_of(bundle, case, size)
        if one.cpu_s is not None
    }


def text_report(bundle: Json) -> str:
    """Return the tables as text, at most 100 columns wide."""
    parts = [head(bundle)]
    for case, size in _shown(bundle):
        records = bundle["settings"]["records"][size]
        parts.append(f"{_title(case)}, {records:,} records")
        parts.append(aligned(contender_rows(bundle, case, size)))
        if size == "full":
            parts.append(aligned(least_rows(bundle, case)))
    parts.append(failures(bundle))
    parts.append(notes(bundle))
    return "\n\n".join(part for part in parts if part)


def markdown_report(bundle: Json) -> str:
    """Return the tables as Markdown."""
    parts = [head(bundle)]
    for case, size in _shown(bundle):
        records = bundle["settings"]["records"][size]
        table = markdown_table(contender_rows(bundle, case, size, is_wide=True))
        parts.append(f"{_title(case)}, {records:,} records:\n\n{table}")
        if size == "full":
            parts.append(markdown_table(least_rows(bundle, case)))
    return "\n\n".join(part for part in [*parts, failures(bundle), notes(bundle)] if part)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, of which the first is the header, as a table in Markdown."""
    header, *others = rows
    lines = [header, ["---"] * len(header), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(bundle: Json) -> list[tuple[str, str]]:
    there = {(r["case"], r["size"]) for r in bundle["runs"]}
    return [(c, s) for c in ("one", "three") for s in ("full", "small") if (c, s) in there]


def _title(case: str) -> str:
    return "one table" if case == "one" else "three tables (events, dead letters, totals)"


def contender_rows(bundle: Json, case: str, size: str, *, is_wide: bool = False) -> list[list[str]]:
    """Return the header and a row per contender. `is_wide`: with the ranges and columns that do not fit into text."""
    further = marginal(bundle, case) if size == "full" else {}
    return [
        list(cells)
        for cells in zip(*_columns(lines_of(bundle, case, size), further, is_wide), strict=True)
    ]


def _columns(
    lines: Sequence[ContenderLine], further: Mapping[str, float], is_wide: bool
) -> list[list[str]]:
    shown = spread_text if is_wide else middle_text
    columns = [
        ["contender", *map(name_text, lines)],
        ["CPU-s", *(spread_text(one.cpu_s) for one in lines)],
        ["main", *(shown(one.main_cpu_s) for one in lines)],
        ["wall s", *(shown(one.wall_s) for one in lines)],
        ["MB", *(f"{one.memory_bytes / MIB:,.0f}" for one in lines)],
        ["S3 req", *(f"{one.requests:,.0f}" if one.requests else "-" for one in lines)],
        ["MB rest", *(f"{one.rest_bytes / 1e6:,.1f}" for one in lines)],
        ["x CPU", *(spread_text(one.ratio) for one in lines)],
        ["x wall", *(shown(one.wall_ratio) for one in lines)],
    ]
    if is_wide:
        columns.insert(7, ["MB to S3", *(f"{one.written_bytes / 1e6:,.1f}" for one in lines)])
        columns.insert(9, ["x CPU of main", *(spread_text(one.main_ratio) for one in lines)])
        columns.append(["noisy", *(f"{one.noisy} of {one.runs}" for one in lines)])
    if further:
        shares = (further.get(one.contender) for one in lines)
        columns.append(["CPU-s/M", *("-" if s is None else f"{s:.2f}" for s in shares)])
    return columns


def name_text(line: ContenderLine) -> str:
    """Return the name of the contender with the number of its runs that failed."""
    failed = f" ({line.failed} of {line.runs} failed)" if line.failed else ""
    return line.contender + failed


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as text in columns, the first to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        " ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def spread_text(spread: Spread | None, *, digits: int = 1) -> str:
    """Return the median with the least and the most."""
    if spread is None:
        return "-"
    middle, least, most = (f"{f:.{digits}f}" for f in (spread.middle, spread.least, spread.most))
    return f"{middle} ({least}-{most})"


def middle_text(spread: Spread | None) -> str:
    """Return the median."""
    return "-" if spread is None else f"{spread.middle:.1f}"


def head(bundle: Json) -> str:
    """Return the line about machine, date and rounds."""
    machine, settings = bundle["machine"], bundle["settings"]
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, {bundle['date']}, commit "
        f"{machine['commit'][:12]}{' with changes' if machine['changed'] else ''}, seed {settings['seed']}, "
        f"{settings['rounds']} {'round' if settings['rounds'] == 1 else 'rounds'}"
        f"{'' if bundle['complete'] else ', interrupted'}"
    )


def failures(bundle: Json) -> str:
    """Return a line per problem that a check found; nothing if there is none."""
    lines = [
        f"round {r['round']}, {r['contender']}, case {r['case']}, {r['size']}: {problem}"
        for r in bundle["runs"]
        for problem in r["problems"]
    ]
    return "\n".join(["failed checks:", *lines]) if lines else ""


def settings_list(bundle: Json) -> Iterator[str]:
    """Yield the lines of a list in Markdown with each contender, its versions and its settings."""
    for name, contender in sorted(bundle["contenders"].items()):
        versions = ", ".join(f"{what} {version}" for what, version in contender["versions"].items())
        yield f"- **{name}**: {contender['what']}{f' ({versions})' if versions else ''}"
        for what, text in contender["settings"].items():
            yield f"  - {what}: {text}"


def notes(bundle: Json) -> str:
    """Return what the columns are, and how many runs were noisy."""
    cores = bundle["machine"]["cores"]
    noisy = sum(is_noisy(r, cores) for r in bundle["runs"])
    return "\n".join(
        [
            "Median (least-most). main: the step that does what others do in their only process. MB: peak of",
            "anonymous memory of all processes. MB rest: all that the run left. x: how many times less than",
            f"{BASE} in the same round. CPU-s/M: per further million records, from the two sizes. Other",
            "programs on a processor only add to a run's CPU time, so the least of all rounds depends least on",
            f"them; there, x is the ratio to the least of {BASE}. small: the smaller number of records.",
            *_speed_notes(bundle),
            f"{noisy} of {len(bundle['runs'])} runs had other programs on more than {NOISY:.0%} of the machine.",
        ]
    )


def _speed_notes(bundle: Json) -> list[str]:
    speeds = Spread.of(run[FIELD] for run in bundle["runs"] if run.get(FIELD))
    if speeds is None:
        return []
    return [
        "How even the machine was: a fixed piece of work before and after each run took",
        f"{spread_text(speeds, digits=2)} s of CPU time.",
    ]


if __name__ == "__main__":
    from bench.whole_job.bundle import read_bundle

    print(markdown_report(read_bundle(Path(sys.argv[1]))))
