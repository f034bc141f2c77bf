"""The cost of a plan, a commit and a status by their size: partitions, topics, tables, files, hours.

    python -m bench.parts.scale [--axis partitions|topics|tables|files|status] [--small] [--json FILE]

All objects are in a store in memory and the log is simulated, so that the time is that of tallystick and its libraries
alone. Each size is measured in its own process, after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from bench.parts import scale_commits, scale_status
from bench.parts.scale_cost import VERBS, Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleAxis:
    """One axis: its sizes, what is made for a size, and the columns of its table (header, figure, decimals).

    `small`: the number of sizes that `--small` takes. `targets`: an upper bound by figure, at the largest size.
    """

    what: str
    sizes: tuple[int, ...]
    measure: Callable[[int], list[Figures]]
    columns: tuple[tuple[str, str, int], ...]
    small: int = 3
    targets: tuple[tuple[str, float], ...] = ()


PLANS_AND_COMMITS = (
    ("plan ms", "plan_cpu_ms", 0),
    ("wall ms", "plan_wall_ms", 0),
    ("GET", "plan_GET", 0),
    ("PUT", "plan_PUT", 0),
    ("plan B", "plan_bytes", 0),
    ("written", "plan_written", 0),
    ("commit ms", "commit_cpu_ms", 0),
    ("GET", "commit_GET", 0),
    ("PUT", "commit_PUT", 0),
    ("written", "commit_written", 0),
)
AXES = {
    "partitions": ScaleAxis(
        what="Partitions planned. Each has 2 offsets per interval: a record and a dead letter in the first 8\n"
        "partitions, aborted records in the others. `next`: median of the 3rd to the 5th interval.",
        sizes=(1, 10, 100, 1_000, 10_000),
        measure=scale_commits.partitions,
        columns=PLANS_AND_COMMITS,
        targets=(("plan_wall_ms", 10_000),),
    ),
    "topics": ScaleAxis(
        what="Topics planned, of 10 partitions each. Each partition has 2 offsets per interval: a record and a dead\n"
        "letter in the first 8, aborted records in the others. `next`: median of the 3rd to the 5th interval.",
        sizes=(1, 10, 100, 500),
        measure=scale_commits.topics,
        columns=PLANS_AND_COMMITS,
    ),
    "tables": ScaleAxis(
        what="Tables declared. Each gets the same record per interval; the table of dead letters gets one, too.\n"
        "`next`: median of the 3rd to the 5th interval.",
        sizes=(1, 3, 10, 30),
        measure=scale_commits.tables,
        columns=(
            ("commit ms", "commit_cpu_ms", 1),
            ("wall ms", "commit_wall_ms", 1),
            ("GET", "commit_GET", 0),
            ("PUT", "commit_PUT", 0),
            ("LIST", "commit_LIST", 0),
            ("read", "commit_read", 0),
            ("written", "commit_written", 0),
            ("root B", "root_bytes", 0),
        ),
    ),
    "files": ScaleAxis(
        what="Files in one commit, the 2nd of a table. Its report was made with copies of one real Parquet file\n"
        "of one row. `after`: the commit of one file that follows. MiB: peak memory of the commit, with the\n"
        "objects that it wrote to the store in memory.",
        sizes=(1, 100, 1_000, 10_000, 50_000),
        measure=scale_commits.files,
        columns=(
            ("commit ms", "commit_cpu_ms", 0),
            ("wall ms", "commit_wall_ms", 0),
            ("MiB", "commit_peak_mib", 1),
            ("GET", "commit_GET", 0),
            ("PUT", "commit_PUT", 0),
            ("LIST", "commit_LIST", 0),
            ("report B", "report_bytes", 0),
            ("written", "commit_written", 0),
            ("after ms", "after_cpu_ms", 0),
        ),
    ),
    "status": ScaleAxis(
        what="Committed hours of one topic of 3 partitions. Root and ledger pages were made at once, without plans,\n"
        "records and tables. `read`: what `tally status` reads; `text`: its text of 50 intervals; `all`: what\n"
        "`tally status --limit 0` reads. Not in the figures: the start of the command, the time of requests to S3,\n"
        "the lag of Kafka.",
        sizes=(24, 720, 8_760, 87_600),
        measure=scale_status.status,
        columns=(
            ("read ms", "read_cpu_ms", 0),
            ("wall ms", "read_wall_ms", 0),
            ("MiB", "read_peak_mib", 1),
            ("GET", "read_GET", 0),
            ("read B", "read_read", 0),
            ("text ms", "text_cpu_ms", 0),
            ("all ms", "all_wall_ms", 0),
        ),
        targets=(("read_wall_ms", 1_000),),
    ),
}


def alone(name: str, size: int) -> list[Figures]:
    """Measure one size in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "bench.parts.scale", "--alone", name, str(size)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: list[Figures] = json.loads(ended.stdout)
    return found


def header(axis: ScaleAxis) -> str:
    """Return the heads of an axis' columns."""
    return f"{'size':>7} {'':5}" + "".join(f"{head:>{width(head)}}" for head, _, _ in axis.columns)


def line(axis: ScaleAxis, size: int, figures: Figures) -> str:
    """Return the figures of one line of an axis' table."""
    values = (
        f"{float(figures[name]):>{width(head)},.{decimals}f}"
        for head, name, decimals in axis.columns
    )
    return f"{size:>7,} {figures.get('interval', ''):5}" + "".join(values)


def width(head: str) -> int:
    """Return the width of a column: numbers of requests are small."""
    return 5 if head in VERBS else 11


def measure(name: str, sizes: tuple[int, ...]) -> list[dict[str, float | str]]:
    """Measure and print an axis; return its lines."""
    axis, found = AXES[name], []
    print(f"\n{axis.what}\n\n{header(axis)}", flush=True)
    for size in sizes:
        for figures in alone(name, size):
            print(line(axis, size, figures), flush=True)
            found.append({"axis": name, "size": size, **figures})
    return found


def main() -> int:
    """Measure the axes and print a table for each. Return 1 if a figure of the largest size is above its target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axis", choices=tuple(AXES), action="append")
    parser.add_argument("--small", action="store_true", help="the first sizes of each axis only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        name, size = options.alone
        axis = AXES[name]
        axis.measure(axis.sizes[0])  # loads the modules, which is no cost of the operation
        print(json.dumps(axis.measure(int(size))))
        return 0
    lines: list[Figures] = []
    missed: list[str] = []
    for name in options.axis or AXES:
        axis = AXES[name]
        lines += measure(name, axis.sizes[: axis.small] if options.small else axis.sizes)
        for figure, most in axis.targets:
            value = float(lines[-1][figure])
            if value > most:
                missed.append(f"{name}: {figure} {value:,.0f}, more than the target of {most:,.0f}")
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")
    print("\n" + "\n".join(missed or ["no target was missed"]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
