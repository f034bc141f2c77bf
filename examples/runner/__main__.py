"""`make example NAME=...`: python -m examples.runner NAME [--no-kill] [--state DIR].

Starts the embedded stack once, plays each example on it plainly, then under one kill -9 of its publishing task, and
ends with a table. The last line is PASS or FAIL.
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

from examples.checks import Ruling
from examples.demo.example import FLIGHTS
from examples.demo.ground import Ground
from examples.demo.story import Story
from examples.runner.registry import EXAMPLES
from examples.runner.scene import LAKES, Example, Missed, Scene, copy_files
from tallystick.errors import TallystickError
from tallystick_devstack.info import PARTS, StackInfo, read_stack, supervisor_lock
from tallystick_devstack.parts import LocalStack

ALL = "all"
INTERRUPTED = 130
STATE_DIR = ".tally"
PLAIN = "no kill"
_FOLDER = "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One line of the closing table: an example, what was done to it, how long it took, and the verdict."""

    example: str
    how: str
    elapsed_s: float
    rows: int
    passed: bool


def main(words: Sequence[str] | None = None) -> int:
    """Play the examples; 0 for PASS, 1 for FAIL, 130 when it was interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.runner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=(*EXAMPLES, ALL), help="which example")
    parser.add_argument("--no-kill", action="store_true", help="the plain rounds only")
    parser.add_argument(
        "--state", type=Path, default=Path(STATE_DIR), help="the stack's state folder"
    )
    arguments = parser.parse_args(words)
    names = list(EXAMPLES) if arguments.name == ALL else [arguments.name]
    story = Story()
    # `kill` and a closed terminal end the examples as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    rounds: list[Round] = []
    try:
        with _stack(arguments.state, names, story) as (info, project):
            for name in names:
                rounds += _play(_scene(name, info, project, story), kill=not arguments.no_kill)
    except KeyboardInterrupt:
        story.say("interrupted: the stack is stopped")
        return INTERRUPTED
    except TallystickError as error:
        story.show(f"\n{error}")
        rounds.append(Round(example="the stack", how="-", elapsed_s=0, rows=0, passed=False))
    story.heading("the examples")
    for line in table(rounds):
        story.show(line)
    passed = bool(rounds) and all(one.passed for one in rounds)
    story.say("the end")
    story.show("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _stack(state_dir: Path, names: Sequence[str], story: Story) -> Iterator[tuple[StackInfo, Path]]:
    """The running stack, owned by this process, so that nothing outlives it, however it ends; and its project."""
    story.heading(f"the stack ({', '.join(PARTS)})")
    # The ground is the demo's: it removes what an earlier demo or example left, and nothing that a user made.
    ground = Ground(state_dir, story, FLIGHTS)
    ground.clear()
    copy_files(Path(__file__).resolve().parents[2], ground.project, names)
    os.environ["TALLYSTICK_EXAMPLES_LAKES"] = LAKES
    os.environ["TALLYSTICK_EXAMPLES_FOLDER"] = str(ground.sent.parent / _FOLDER)
    os.environ["TALLYSTICK_EXAMPLES_RETRY_DELAY_S"] = "2"
    with supervisor_lock(ground.state_dir):
        stack = LocalStack(ground.state_dir, project_dir=ground.project)
        try:
            stack.start(story.say)
            info = read_stack(ground.state_dir)
            assert info is not None
            yield info, ground.project
        finally:
            stack.stop(story.say)


def _scene(name: str, info: StackInfo, project: Path, story: Story) -> Scene:
    folder = Path(os.environ["TALLYSTICK_EXAMPLES_FOLDER"]) / name
    folder.mkdir(parents=True)
    return Scene(
        name=name, info=info, project=project, folder=folder, story=story, api=info.airflow()
    )


def _play(scene: Scene, *, kill: bool) -> Iterator[Round]:
    """One example, plainly, and then under a kill; what it raises is a round that failed."""
    scene.story.heading(scene.name)
    example: Example = EXAMPLES[scene.name](scene)

    def plain() -> str:
        began = time.monotonic()
        count = example.fill()
        scene.say(f"{count:,} records sent in {time.monotonic() - began:.1f} s")
        example.plain()
        return PLAIN

    first = _round(scene, example, plain)
    yield first
    if kill and first.passed:
        yield _round(scene, example, lambda: str(example.struck()))


def _round(scene: Scene, example: Example, act: Callable[[], str]) -> Round:
    began = time.monotonic()
    ruled = Ruling(rows=0, findings=())
    how = ""
    try:
        how = act()
        ruled = example.judge()
    except Exception as error:  # noqa: BLE001  (whatever an example raises is a round that failed: the others are played)
        how = how or "did not come to its end"
        kind = "" if isinstance(error, Missed | TallystickError) else f"{type(error).__name__}: "
        scene.say(f"BAD: {kind}{error}")
        scene.say(f"the tasks' logs lie in {scene.info.state_dir / 'airflow' / 'logs'}")
    for line in ruled.lines():
        scene.story.show(line)
    return Round(
        example=scene.name,
        how=how,
        elapsed_s=time.monotonic() - began,
        rows=ruled.rows,
        passed=ruled.passed,
    )


def table(rounds: Sequence[Round]) -> Iterator[str]:
    """The closing table, line by line."""
    yield f"  {'example':<9}  {'round':<58}  {'s':>5}  {'rows':>7}"
    yield f"  {'-' * 9}  {'-' * 58}  {'-' * 5}  {'-' * 7}"
    for one in rounds:
        verdict = "PASS" if one.passed else "FAIL"
        yield f"  {one.example:<9}  {one.how[:58]:<58}  {one.elapsed_s:>5.0f}  {one.rows:>7,}  {verdict}"
    yield f"  {len(rounds)} rounds in {sum(one.elapsed_s for one in rounds):.0f} s, after the stack was up"


if __name__ == "__main__":
    sys.exit(main())
