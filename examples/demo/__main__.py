"""`make demo`: python -m examples.demo [--once] [--example NAME] [--spark cluster] [--state DIR].

The last line is PASS or FAIL.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from examples.demo.doors import DoorJammed, Doors, day
from examples.demo.example import EXAMPLES, FLIGHTS, Example
from examples.demo.flights import csv_archive
from examples.demo.ground import TOPIC, Ground, set_environment
from examples.demo.judge import LakeAddress, judge
from examples.demo.sight import Watcher
from examples.demo.story import Deed, Story, deeds_table
from tallystick.errors import TallystickError
from tallystick_devstack.airflow import LOCAL_MASTER
from tallystick_devstack.info import ALL_PARTS, PARTS, StackInfo, read_stack, supervisor_lock
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.stack import down, release, up

INTERRUPTED = 130
STATE_DIR = ".tally"


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo; 0 for PASS, 1 for FAIL, 130 when it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="stop the stack at the end")
    parser.add_argument(
        "--state", type=Path, default=Path(STATE_DIR), help="the stack's state folder"
    )
    parser.add_argument(
        "--example", choices=EXAMPLES, default=FLIGHTS.name, help="the pipeline that is played"
    )
    parser.add_argument(
        "--spark",
        choices=("local", "cluster"),
        default="local",
        help="where tasks run: within their driver, or on a standalone cluster",
    )
    arguments = parser.parse_args(words)
    parts = ALL_PARTS if arguments.spark == "cluster" else PARTS
    play = _Play(example=EXAMPLES[arguments.example], parts=parts, once=arguments.once)
    story = Story()
    # `kill` and a closed terminal end the demo as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        passed = _run(Ground(arguments.state, story, play.example), story, play)
    except KeyboardInterrupt:
        story.say("interrupted: the stack is stopped")
        return INTERRUPTED
    except TallystickError as error:
        story.show(f"\n{error}")
        passed = False
    story.say("the end")
    story.show("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Play:
    """What is played, on which parts; `once`: the stack is stopped at the end."""

    example: Example
    parts: Sequence[str]
    once: bool


def _run(ground: Ground, story: Story, play: _Play) -> bool:
    story.heading(f"the stack ({', '.join(play.parts)}) and a year of flights")
    set_environment(play.example)
    ground.clear()
    ground.copy_project()
    filled = _beside(ground.fill_topic)
    try:
        with _stack(ground, story, play) as info:
            filled.result()
            passed = _pull_and_judge(info, ground, story, play.example)
            if not play.once:
                _tell_where(info, ground, story, play.example)
    finally:
        ground.give_up()
    if play.once:
        story.show(
            f"\nThe stack is stopped. `{tally_words(ground.state_dir)} local up` starts it again over the same state."
        )
    return passed


def _beside(work: Callable[[], None]) -> Future[None]:
    """Begin to work in a thread that does not keep an interrupted demo from ending."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001  (whoever asks for the result gets it)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@contextmanager
def _stack(ground: Ground, story: Story, play: _Play) -> Iterator[StackInfo]:
    """The running stack. With `once` this process owns it, so that nothing outlives it, however it ends.

    Else a supervisor owns it and it stays up once the demo has come to its end; an interrupted or killed one ends it.
    """
    if not play.once:
        running = up(
            ground.state_dir,
            project_dir=ground.project,
            parts=play.parts,
            bound=True,  # killed in the middle, the demo leaves nothing behind
            report=story.say,
        )
        try:
            yield running
        except KeyboardInterrupt:
            down(ground.state_dir)
            raise
        except Exception:
            release(ground.state_dir)
            raise
        release(ground.state_dir)
        return
    with supervisor_lock(ground.state_dir):
        stack = LocalStack(ground.state_dir, project_dir=ground.project, parts=play.parts)
        try:
            stack.start(story.say)
            info = read_stack(ground.state_dir)
            assert info is not None
            yield info
        finally:
            stack.stop(story.say)


def _pull_and_judge(info: StackInfo, ground: Ground, story: Story, example: Example) -> bool:
    variables = info.environment()
    spark = info.parts.get("spark")
    doors = Doors(
        example,
        info.airflow(),
        Watcher(example, variables),
        ground,
        story,
        master=spark.address if spark is not None else LOCAL_MASTER,
    )
    story.heading("the doors")
    jammed = False
    try:
        doors.pull_all()
    except (DoorJammed, TallystickError) as error:
        story.show(f"\nA door did not do what it must: {error}")
        jammed = True
    story.heading("the ledger, as `tally status` and `tally verify` tell it")
    _tally(story, variables, "status", example.lake)
    demands = [word for table in example.every_record for word in ("--every-record", table)]
    proven = _tally(story, variables, "verify", "--deep", *demands, example.lake) == 0
    story.heading("what each door did")
    _show_deeds(story, doors.deeds)
    story.heading("the judge: tables and ledger against the CSV, by PyIceberg and DuckDB")
    verdict = judge(
        _lake_address(variables, example),
        pipeline=example.name,
        topic=TOPIC,
        sent=ground.sent,
        csv_archive=csv_archive(),
        until=None if example.rest_of_year else day(example.scheduled[-1] + 1),
    )
    for line in verdict.lines():
        story.show(line)
    return verdict.passed and proven and not jammed


def _tally(story: Story, variables: dict[str, str], *words: str) -> int:
    """Run `tally` as a user does, against the demo's lake."""
    ended = subprocess.run(
        [sys.executable, "-c", "from tallystick.cli import main; main()", *words],
        env={**os.environ, **variables, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    story.show(f"$ tally {' '.join(words)}\n{ended.stdout.rstrip()}\n")
    return ended.returncode


def _show_deeds(story: Story, deeds: Sequence[Deed]) -> None:
    for line in deeds_table(deeds):
        story.show(line)


def _lake_address(variables: dict[str, str], example: Example) -> LakeAddress:
    bucket, _, prefix = example.lake.removeprefix("s3://").partition("/")
    return LakeAddress(
        endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
        bucket=bucket,
        prefix=prefix,
        access_key_id=variables["AWS_ACCESS_KEY_ID"],
        secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region=variables["AWS_REGION"],
    )


def tally_words(state_dir: Path) -> str:
    """How a shell in this folder calls `tally` about this stack: it need not be on PATH, nor the state be in .tally."""
    beside = Path(sys.executable).with_name("tally")
    if beside.is_relative_to(Path.cwd()):
        beside = beside.relative_to(Path.cwd())
    words = "tally" if shutil.which("tally") else shlex.quote(str(beside))
    if state_dir == (Path.cwd() / STATE_DIR).resolve():
        return words
    return f"TALLYSTICK_STATE_DIR={shlex.quote(str(state_dir))} {words}"


def _tell_where(info: StackInfo, ground: Ground, story: Story, example: Example) -> None:
    tally = tally_words(ground.state_dir)
    story.heading("the stack stays up")
    story.show(
        f"Airflow   {info.airflow_url}   user {info.airflow_user}, password {info.airflow_password}\n"
        f"S3        {info.variables['AWS_ENDPOINT_URL_S3']}   lake root {example.lake}\n"
        f"DAG, job  {ground.project} (a copy: change it and press Clear)\n\n"
        f'Shell: eval "$({tally} local env)"   (then tally, airflow, aws and boto3 work on this stack)\n'
        f"       export TALLYSTICK_LAKE={example.lake}\n"
        f"Try:   tally status\n"
        f"       tally verify\n"
        f'       tally sql "{example.question}"\n'
        f"Stop:  {tally} local down"
    )


if __name__ == "__main__":
    sys.exit(main())
