"""`make example NAME=...`: python -m examples.runner NAME [--no-kill] [--state DIR].

Starts the embedded stack once, runs each example on it without a kill, then with one kill -9 of its publishing task, and
prints a table. The last line is PASS or FAIL.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from examples.checks import CheckResult
from examples.demo.console import Console
from examples.demo.pipelines import FLIGHTS
from examples.demo.workspace import Workspace
from examples.runner.copies import copy_files
from examples.runner.harness import LAKES, Example, ExampleFailedError, Harness
from examples.runner.registry import EXAMPLES, parts_of
from tallystick.errors import TallystickError
from tallystick_devstack.info import StackInfo, read_stack, supervisor_lock
from tallystick_devstack.parts import LocalStack

ALL = "all"
INTERRUPTED = 130
STATE_DIR = ".tally"
NO_KILL = "no kill"
_FOLDER = "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One line of the table at the end: an example, its kill, how long the round took, and the result."""

    example: str
    kill: str
    elapsed_s: float
    rows: int
    passed: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the examples; return 0 for PASS, 1 for FAIL, 130 if they were interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.runner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=(*EXAMPLES, ALL), help="the example")
    parser.add_argument("--no-kill", action="store_true", help="only the rounds without a kill")
    parser.add_argument(
        "--state", type=Path, default=Path(STATE_DIR), help="the stack's state folder"
    )
    arguments = parser.parse_args(argv)
    names = list(EXAMPLES) if arguments.name == ALL else [arguments.name]
    console = Console()
    # `kill` and a closed terminal end the examples like Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    rounds: list[Round] = []
    try:
        with _stack(arguments.state, names, console) as (info, project):
            for name in names:
                rounds += _run_example(
                    _harness(name, info, project, console), kill=not arguments.no_kill
                )
    except KeyboardInterrupt:
        console.log("interrupted: the stack is stopped")
        return INTERRUPTED
    except TallystickError as error:
        console.write(f"\n{error}")
        rounds.append(Round(example="the stack", kill="-", elapsed_s=0, rows=0, passed=False))
    console.heading("the examples")
    for line in table(rounds):
        console.write(line)
    passed = bool(rounds) and all(r.passed for r in rounds)
    console.log("done")
    console.write("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _stack(
    state_dir: Path, names: Sequence[str], console: Console
) -> Iterator[tuple[StackInfo, Path]]:
    """Start the stack, owned by this process, so that no process outlives it; yield it and its project."""
    parts = parts_of(names)
    console.heading(f"the stack ({', '.join(parts)})")
    # The workspace is that of the demo: it removes the state of an earlier demo or example, and nothing of a user.
    workspace = Workspace(state_dir, console, FLIGHTS)
    workspace.clear()
    copy_files(Path(__file__).resolve().parents[2], workspace.project, names)
    os.environ["TALLYSTICK_EXAMPLES_LAKES"] = LAKES
    os.environ["TALLYSTICK_EXAMPLES_FOLDER"] = str(workspace.sent.parent / _FOLDER)
    os.environ["TALLYSTICK_EXAMPLES_RETRY_DELAY_S"] = "2"
    with supervisor_lock(workspace.state_dir):
        stack = LocalStack(workspace.state_dir, project_dir=workspace.project, parts=parts)
        try:
            stack.start(console.log)
            info = read_stack(workspace.state_dir)
            assert info is not None
            yield info, workspace.project
        finally:
            stack.stop(console.log)


def _harness(name: str, info: StackInfo, project: Path, console: Console) -> Harness:
    folder = Path(os.environ["TALLYSTICK_EXAMPLES_FOLDER"]) / name
    folder.mkdir(parents=True)
    return Harness(
        name=name, info=info, project=project, folder=folder, console=console, api=info.airflow()
    )


def _run_example(harness: Harness, *, kill: bool) -> Iterator[Round]:
    """Run one example without a kill, and then with one; an exception is a round that failed."""
    harness.console.heading(harness.name)
    example: Example = EXAMPLES[harness.name](harness)

    def without_kill() -> str:
        began = time.monotonic()
        count = example.fill()
        harness.log(f"{count:,} records sent in {time.monotonic() - began:.1f} s")
        example.without_kill()
        return NO_KILL

    first = _round(harness, example, without_kill)
    yield first
    if kill and first.passed:
        yield _round(harness, example, lambda: str(example.with_kill()))


def _round(harness: Harness, example: Example, act: Callable[[], str]) -> Round:
    began = time.monotonic()
    result = CheckResult(rows=0, findings=())
    kill = ""
    try:
        kill = act()
        result = example.check()
    except Exception as error:  # noqa: BLE001  (any exception is a round that failed: the other examples are run)
        kill = kill or "not completed"
        kind = (
            ""
            if isinstance(error, ExampleFailedError | TallystickError)
            else f"{type(error).__name__}: "
        )
        harness.log(f"BAD: {kind}{error}")
        harness.log(f"the logs of the tasks are in {harness.info.state_dir / 'airflow' / 'logs'}")
    for line in result.lines():
        harness.console.write(line)
    return Round(
        example=harness.name,
        kill=kill,
        elapsed_s=time.monotonic() - began,
        rows=result.rows,
        passed=result.passed,
    )


def table(rounds: Sequence[Round]) -> Iterator[str]:
    """Yield the lines of the table at the end."""
    yield f"  {'example':<15}  {'round':<52}  {'s':>5}  {'rows':>7}"
    yield f"  {'-' * 15}  {'-' * 52}  {'-' * 5}  {'-' * 7}"
    for r in rounds:
        verdict = "PASS" if r.passed else "FAIL"
        yield f"  {r.example:<15}  {r.kill[:52]:<52}  {r.elapsed_s:>5.0f}  {r.rows:>7,}  {verdict}"
    yield f"  {len(rounds)} rounds in {sum(r.elapsed_s for r in rounds):.0f} s, after the start of the stack"


if __name__ == "__main__":
    sys.exit(main())
