"""Chaos on the real stack: python tests/chaos/run.py [--rounds N] [--nemesis NAME]... [--seed S] [--table FILE]

Without --rounds: every nemesis once, then as many more rounds as fit into --minutes. Exit code 0: the guarantee held in
every round; 1: it was violated, and the counter-example is printed with the command that replays it; 2: a nemesis was
never injected, or no compaction was published; 3: the harness itself failed.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
import traceback
import warnings
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos import played, small_disk, table
from chaos.course import NEMESES, Broken, Course
from chaos.workspace import Workspace

MINUTES = 36.0  # with the stack's start and stop, 40


def main() -> int:
    """Play the rounds and print the closing table."""
    options = _options()
    # kafka-python and boto3 leave sockets to the garbage collector if their server is killed.
    warnings.simplefilter("ignore")
    # A shell starts background processes with Ctrl-C ignored; a signal to this process must end it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _as_interrupt)
    nemeses = [NEMESES[name] for name in options.nemesis or NEMESES]
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    began = time.monotonic()

    def report(line: str) -> None:
        print(f"[{time.monotonic() - began:6.0f} s] {line}", flush=True)

    report(f"seed {seed}: {', '.join(n.name for n in nemeses)}")
    reason = small_disk.enter_own_namespace()
    if reason is not None:
        report(f"no private mounts: {reason}")
    with Workspace(cluster=any(n.cluster for n in nemeses), report=report) as workspace:
        course = Course(
            workspace=workspace,
            nemeses=nemeses,
            seed=seed,
            report=report,
            rounds=options.rounds,
            budget_s=options.minutes * 60,
            prelude=options.prelude.read_text() if options.prelude else "",
        )
        try:
            broken = course.run()
        finally:
            # Everything is stopped and removed from here on, even if Ctrl-C is pressed again.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            _close(course, options.table, keep=options.keep)
    return exit_code_of(course, broken)


def exit_code_of(course: Course, broken: Broken | None) -> int:
    """Print why a course failed, and return the exit code."""
    if broken is not None:
        print(f"\nVIOLATION: {broken.nemesis}, seed {broken.seed}: {broken.counter_example}")
        print(f"\nreplay: {broken.replay}", flush=True)
        return 1
    idle = [line.nemesis for line in course.lines.values() if not line.rounds and not line.not_run]
    if idle:
        print(f"\nnever injected: {', '.join(idle)}", flush=True)
        return 2
    if not course.compactions.published:
        print("\nno compaction was published in any round", flush=True)
        return 2
    return 0


def _close(course: Course, file: Path | None, *, keep: bool) -> None:
    lines = list(course.lines.values())
    print(f"\n{table.as_text(lines)}\n\ncompactions: {course.compactions}", flush=True)
    if file is not None:
        table.write(file, lines)
    if keep:
        date = datetime.now(UTC).date().isoformat()
        played.keep(played.played_of(lines, date=date, commit=_commit()))


def _commit() -> str:
    """Return the played commit, with a plus if the product has uncommitted changes."""
    git = ["git", "-C", str(played.ROOT)]
    commit = subprocess.check_output([*git, "rev-parse", "--short=10", "HEAD"], text=True).strip()
    changed = subprocess.call([*git, "diff", "--quiet", "HEAD", "--", "plugins", "spark_jobs"])
    return commit + ("+" if changed else "")


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, help="rounds of each nemesis (default: what fits)")
    parser.add_argument("--nemesis", action="append", choices=sorted(NEMESES), metavar="NAME")
    parser.add_argument("--seed", type=int, help="of the first round of each (default: drawn)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="if --rounds is not given")
    parser.add_argument("--table", type=Path, metavar="FILE", help="also write it, .json or .md")
    parser.add_argument(
        "--keep", action="store_true", help="add to docs/reference/chaos.json and guarantees.md"
    )
    parser.add_argument(
        "--prelude",
        type=Path,
        metavar="FILE",
        help="Python lines for the top of each DAG file, which break the product: the run must detect it",
    )
    parser.epilog = "nemeses:\n" + "\n".join(f"  {n.name:<17} {n.what}" for n in NEMESES.values())
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted: everything was stopped and removed", flush=True)
        sys.exit(130)
    except Exception:  # noqa: BLE001 - an error of the harness is not a violation, and needs another exit code
        traceback.print_exc()
        sys.exit(3)
