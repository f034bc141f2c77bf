"""Polls of two tables through `tally catalog` while commits, compactions and gc run: no poll may see two versions.

    python -m bench.parts.polls [--polls 10000] [--commits 200] [--pollers 4]

An S3 server, two `tally catalog` (one with a token), a writer, and PyIceberg and DuckDB in several processes. Each poll
begins a session and reads both tables; one in 19 reads the rows with PyIceberg, one in 19 with DuckDB. Afterwards, each
is compared with the commit records. Exits with 0 only if no poll saw two versions, an older version than the newest one,
or other rows than its version has, and if each error was one after which the client should try again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from bench.parts.polls_client import PollFailure, poll
from bench.parts.polls_history import (
    History,
    Poll,
    Problem,
    SeenVersion,
    is_overtaken,
    problems,
    with_next_table,
)
from bench.parts.polls_lake import PairsWriter, aged, read_history, seen_version, steps, write
from bench.parts.polls_processes import CatalogLog, Maintenance, catalogs
from bench.parts.polls_workers import PAUSE_S, Progress, Worker
from tallystick.lake import Lake
from tallystick.operations.verify import verify
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick_devstack.testing.servers import aws_environment, ministack

URI = "s3://lake/pairs"
FAILURES_MAX = 50
REPORTS_EVERY_S = 20.0
STUCK_S = 180.0
SHOWN_MAX = 10
PERCENTILES = (50, 95, 99, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollsOptions:
    """How much is done. `every`: the commits from one compaction to the next; gc runs in the middle between two.

    `base`: the commits before the polls begin, of an hour ago, so that gc finds something to delete from the start on.
    `grace_s`: the reader grace of gc, in which each poll must end.
    """

    uri: str = URI
    polls: int = 10_000
    commits: int = 200
    base: int = 10
    pollers: int = 4
    every: int = 20
    grace_s: int = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PollsResult:
    """What the processes did and saw. `problems` are broken promises, `planted` and `found` those of the self-check."""

    polls: Sequence[Poll]
    failures: Sequence[PollFailure]
    history: History
    problems: Sequence[Problem]
    planted: int
    found: int
    commits: int
    compactions: int
    maintenance: Maintenance
    logs: Sequence[CatalogLog]
    is_proven: bool
    elapsed_s: float

    @property
    def versions(self) -> int:
        """The number of versions that were seen, each by both of its tables."""
        places = {self.history.place_of_pair(one.pair) for one in self.polls if one.pair}
        return len(places - {None})

    def reasons(self, wanted: PollsOptions) -> list[str]:
        """Return why the run failed; nothing if it passed."""
        kinds = Counter(one.kind for one in self.problems)
        fatal = [one for one in self.failures if not one.is_retryable]
        overtaken = sum(is_overtaken(self.history, one) for one in self.polls)
        checks = {
            **{f"{count} problems: {kind}": False for kind, count in sorted(kinds.items())},
            f"{len(fatal)} errors that are not retryable": not fatal,
            f"{len(self.polls)} of {wanted.polls} polls": len(self.polls) >= wanted.polls,
            f"{self.commits} of {wanted.commits} commits": self.commits >= wanted.commits,
            "no compaction was published": self.compactions > 0,
            "no object was deleted": self.maintenance.deleted > 0,
            "no commit landed during a poll": overtaken > 0,
            "no rows were read": any(one.rows for one in self.polls),
            f"{self.found} of {self.planted} planted pairs were found": (
                self.found == self.planted > 0
            ),
            "the lake is not proven": self.is_proven,
            **{error: False for error in self.maintenance.errors},
            **{line: False for one in self.logs for line in one.defects},
        }
        return [why for why, is_good in checks.items() if not is_good]


def run(
    wanted: PollsOptions, s3: str, folder: Path, report: Callable[[str], None] = print
) -> PollsResult:
    """Do all polls, commits, compactions and collections, and check what was seen. The bucket must exist."""
    began_s = time.monotonic()
    numbers = steps(wanted.base + wanted.commits)
    old = PairsWriter(uri=wanted.uri, steps=numbers, runtime=aged(timedelta(hours=1)))
    for _ in range(wanted.base):
        old.commit_next()
    seen = [seen_version(old.small.lake)]
    context = get_context("spawn")
    progress = Progress(context)
    maintenance = Maintenance(wanted.uri, every=wanted.every, grace_s=wanted.grace_s)
    workers: list[Worker] = []
    with catalogs(wanted.uri, s3, folder) as (places, logs):
        try:
            workers.append(Worker.start(context, _write, progress, wanted, numbers))
            workers += [
                Worker.start(context, poll, places, progress) for _ in range(wanted.pollers)
            ]
            _supervise(wanted, progress, workers, maintenance, report)
            progress.end()
            seen += [*workers[0].result(), *maintenance.seen]
            answers = [worker.result() for worker in workers[1:]]
        finally:
            progress.end()
            for worker in workers:
                worker.kill()
    elapsed_s = time.monotonic() - began_s
    lake = Lake(open_store(wanted.uri), system_runtime(), proven=True)
    history = read_history(lake, seen)
    polls = [one for polls, _ in answers for one in polls]
    planted = [p for one in polls if (p := with_next_table(history, one)) is not None]
    begun = history.at_or_before(seen[0].version)
    return PollsResult(
        polls=polls,
        failures=[one for _, failures in answers for one in failures],
        history=history,
        problems=[
            *history.record_problems(seen),
            *(problem for one in polls for problem in problems(history, one)),
        ],
        planted=len(planted),
        found=sum(any(p.kind == "mixed" for p in problems(history, one)) for one in planted),
        commits=progress.commits,
        compactions=sum(one.compactions for one in history.versions[begun + 1 :]),
        maintenance=maintenance,
        logs=logs,
        is_proven=verify(lake, deep=True).proven,
        elapsed_s=elapsed_s,
    )


def _write(progress: Progress, wanted: PollsOptions, numbers: Sequence[int]) -> list[SeenVersion]:
    return write(
        progress, PairsWriter(uri=wanted.uri, steps=numbers, done=wanted.base), wanted.polls
    )


def _supervise(
    wanted: PollsOptions,
    progress: Progress,
    workers: Sequence[Worker],
    maintenance: Maintenance,
    report: Callable[[str], None],
) -> None:
    """Compact and collect after some commits, until everything is done, or too many polls have failed."""
    began_s = reported_s = moved_s = time.monotonic()
    moved = 0
    while not (
        progress.polls >= wanted.polls
        and progress.commits >= wanted.commits
        and maintenance.has_done_all(wanted.commits)
    ):
        maintenance.run_due(progress.commits)
        now_s = time.monotonic()
        if now_s - reported_s >= REPORTS_EVERY_S:
            reported_s = now_s
            report(
                f"{now_s - began_s:5.0f} s  {progress.polls:,} polls, {progress.commits} commits, "
                f"{maintenance.compact_runs} compactions run, {maintenance.gc_runs} gc runs, "
                f"{progress.failures} errors that are not retryable"
            )
        if moved != progress.polls:
            moved, moved_s = progress.polls, now_s
        has_ended = any(worker.has_ended for worker in workers[1:])
        has_failed = workers[0].has_ended and progress.commits < wanted.commits
        if has_ended or has_failed or progress.failures > FAILURES_MAX or now_s - moved_s > STUCK_S:
            return
        time.sleep(PAUSE_S)


def print_result(result: PollsResult, wanted: PollsOptions) -> None:
    """Print what was done and seen, and how long the polls took."""
    polls, history = result.polls, result.history
    modes = Counter(f"{one.client}, {one.mode}" for one in polls)
    two = sum(
        one.mode == "latest" and one.pair is not None and history.place_of_pair(one.pair) is None
        for one in polls
    )
    print(
        f"{len(polls):,} polls in {result.elapsed_s:.0f} s: "
        + ", ".join(f"{count:,} {mode}" for mode, count in sorted(modes.items()))
    )
    print(
        f"{sum(one.pair is not None for one in polls):,} pairs of metadata and "
        f"{sum(one.counts is not None for one in polls):,} pairs of rows compared with {len(history.versions)} versions; "
        f"{result.versions} versions seen, {sum(one.rows for one in polls):,} rows read"
    )
    print(
        f"{result.commits} commits, {result.compactions} compactions published in "
        f"{result.maintenance.compact_runs} runs, {result.maintenance.gc_runs} gc runs that deleted "
        f"{result.maintenance.deleted:,} objects; {result.maintenance.put_off} of these runs were put off"
    )
    print(
        f"{sum(is_overtaken(history, one) for one in polls):,} polls during which a commit landed; "
        f"{two} of those with `latest` read two versions, which it allows"
    )
    for one in result.logs:
        print(f"catalog {one.name}: answers by status {dict(sorted(one.statuses.items()))}")
    _print_failures(result.failures)
    _print_times(polls, wanted)
    print(f"self-check: {result.found:,} of {result.planted:,} planted pairs of two versions found")
    for problem in result.problems[:SHOWN_MAX]:
        print(f"{problem.kind}: {problem.text}")
    print(f"mixed versions: {sum(p.kind == 'mixed' for p in result.problems)}", flush=True)


def _print_failures(failures: Sequence[PollFailure]) -> None:
    kinds = Counter(
        (one.client, one.step, one.kind, one.status, one.is_retryable) for one in failures
    )
    print(f"errors: {len(failures)}")
    for (client, step, kind, status, is_retryable), count in kinds.most_common():
        how = "retryable" if is_retryable else "NOT retryable"
        print(f"  {count:>6,}  {client}, {step}: {kind}, HTTP {status}, {how}")
    for one in [one for one in failures if not one.is_retryable][:SHOWN_MAX]:
        print(f"  poll {one.number} ({one.mode}), after {one.after_s:.1f} s: {one.message}")


def _print_times(polls: Sequence[Poll], wanted: PollsOptions) -> None:
    times: dict[str, list[float]] = {}
    for one in polls:
        for step, took_s in one.steps_s:
            times.setdefault(step, []).append(took_s)
    print(f"{'milliseconds':<26}{'count':>8}" + "".join(f"{_heading(p):>10}" for p in PERCENTILES))
    for step, took in times.items():
        took.sort()
        cells = (took[min(len(took) - 1, len(took) * p // 100)] for p in PERCENTILES)
        print(f"{step:<26}{len(took):>8,}" + "".join(f"{1000 * s:>10.1f}" for s in cells))
    longest_s = max((one.ended_s - one.began_s for one in polls), default=0.0)
    print(f"longest session: {longest_s:.1f} s, of a reader grace of {wanted.grace_s} s")


def _heading(percent: int) -> str:
    return "max" if percent == 100 else f"p{percent}"


def main() -> int:
    """Run on an S3 server of its own; return 0 if it passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("polls", "commits", "base", "pollers", "every", "grace_s"):
        default = PollsOptions.__dataclass_fields__[name].default
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    wanted = PollsOptions(**vars(parser.parse_args()))
    with ministack() as s3, tempfile.TemporaryDirectory(prefix="bench-polls-") as folder:
        os.environ.update(aws_environment(s3))
        import boto3

        boto3.client("s3").create_bucket(Bucket="lake")
        result = run(wanted, s3, Path(folder), lambda line: print(line, flush=True))
    print_result(result, wanted)
    reasons = result.reasons(wanted)
    print("\n".join(f"FAIL: {why}" for why in reasons) or "PASS")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
