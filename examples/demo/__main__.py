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

from examples.demo.check import LakeAddress, check_lake
from examples.demo.console import Console, steps_table
from examples.demo.flights import csv_archive
from examples.demo.lake_state import LakeReader
from examples.demo.pipelines import FLIGHTS, PIPELINES, DemoPipeline
from examples.demo.user_actions import ActionFailedError, UserActions, day
from examples.demo.workspace import TOPIC, Workspace, set_environment
from tallystick.errors import TallystickError
from tallystick_devstack.airflow import LOCAL_MASTER
from tallystick_devstack.info import ALL_PARTS, PARTS, StackInfo, read_stack, supervisor_lock
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.stack import down, release, up

INTERRUPTED = 130
STATE_DIR = ".tally"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 for PASS, 1 for FAIL, 130 if it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="stop the stack at the end")
    parser.add_argument(
        "--state", type=Path, default=Path(STATE_DIR), help="the stack's state folder"
    )
    parser.add_argument(
        "--example", choices=PIPELINES, default=FLIGHTS.name, help="the pipeline that the demo runs"
    )
    parser.add_argument(
        "--spark",
        choices=("local", "cluster"),
        default="local",
        help="where tasks run: within their driver, or on a standalone cluster",
    )
    arguments = parser.parse_args(argv)
    parts = ALL_PARTS if arguments.spark == "cluster" else PARTS
    options = _Options(pipeline=PIPELINES[arguments.example], parts=parts, once=arguments.once)
    console = Console()
    # `kill` and a closed terminal end the demo like Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        passed = _run(Workspace(arguments.state, console, options.pipeline), console, options)
    except KeyboardInterrupt:
        console.log("interrupted: the stack is stopped")
        return INTERRUPTED
    except TallystickError as error:
        console.write(f"\n{error}")
        passed = False
    console.log("done")
    console.write("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The pipeline to run, and the parts of the stack; `once`: the stack is stopped at the end."""

    pipeline: DemoPipeline
    parts: Sequence[str]
    once: bool


def _run(workspace: Workspace, console: Console, options: _Options) -> bool:
    console.heading(f"the stack ({', '.join(options.parts)}) and a year of flights")
    set_environment(options.pipeline)
    workspace.clear()
    workspace.copy_project()
    filled = _in_background(workspace.fill_topic)
    try:
        with _stack(workspace, console, options) as info:
            filled.result()
            passed = _run_and_check(info, workspace, console, options.pipeline)
            if not options.once:
                _print_addresses(info, workspace, console, options.pipeline)
    finally:
        workspace.cancel()
    if options.once:
        up_again = f"{tally_command(workspace.state_dir)} local up"
        console.write(f"\nThe stack is stopped. `{up_again}` starts it again over the same state.")
    return passed


def _in_background(work: Callable[[], None]) -> Future[None]:
    """Start `work` in a thread that does not keep an interrupted demo from ending."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001  (raised by `result()`)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@contextmanager
def _stack(workspace: Workspace, console: Console, options: _Options) -> Iterator[StackInfo]:
    """Start the stack. With `once` this process owns it, so that no process outlives the demo, however it ends.

    Otherwise a supervisor owns it, and it stays up after the demo is complete; if the demo is interrupted or killed, the
    supervisor stops the stack.
    """
    if not options.once:
        running = up(
            workspace.state_dir,
            project_dir=workspace.project,
            parts=options.parts,
            bound=True,  # a demo that is killed leaves no process behind
            report=console.log,
        )
        try:
            yield running
        except KeyboardInterrupt:
            down(workspace.state_dir)
            raise
        except Exception:
            release(workspace.state_dir)
            raise
        release(workspace.state_dir)
        return
    with supervisor_lock(workspace.state_dir):
        stack = LocalStack(workspace.state_dir, project_dir=workspace.project, parts=options.parts)
        try:
            stack.start(console.log)
            info = read_stack(workspace.state_dir)
            assert info is not None
            yield info
        finally:
            stack.stop(console.log)


def _run_and_check(
    info: StackInfo, workspace: Workspace, console: Console, pipeline: DemoPipeline
) -> bool:
    variables = info.environment()
    spark = info.parts.get("spark")
    actions = UserActions(
        pipeline,
        info.airflow(),
        LakeReader(pipeline, variables),
        workspace,
        console,
        master=spark.address if spark is not None else LOCAL_MASTER,
    )
    console.heading("user actions")
    failed = False
    try:
        actions.run_all()
    except (ActionFailedError, TallystickError) as error:
        console.write(f"\nA user action had an unexpected result: {error}")
        failed = True
    console.heading("the ledger, from `tally status` and `tally verify`")
    _tally(console, variables, "status", pipeline.lake)
    demands = [word for table in pipeline.every_record for word in ("--every-record", table)]
    proven = _tally(console, variables, "verify", "--deep", *demands, pipeline.lake) == 0
    console.heading("the result of each user action")
    for line in steps_table(actions.steps):
        console.write(line)
    console.heading("the check: tables and ledger against the CSV, by PyIceberg and DuckDB")
    verdict = check_lake(
        _lake_address(variables, pipeline),
        pipeline=pipeline.name,
        topic=TOPIC,
        sent=workspace.sent,
        csv_archive=csv_archive(),
        until=None if pipeline.rest_of_year else day(pipeline.scheduled[-1] + 1),
    )
    for line in verdict.lines():
        console.write(line)
    return verdict.passed and proven and not failed


def _tally(console: Console, variables: dict[str, str], *arguments: str) -> int:
    """Run `tally` as a user does, against the demo's lake; return its exit code."""
    ended = subprocess.run(
        [sys.executable, "-c", "from tallystick.cli import main; main()", *arguments],
        env={**os.environ, **variables, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    console.write(f"$ tally {' '.join(arguments)}\n{ended.stdout.rstrip()}\n")
    return ended.returncode


def _lake_address(variables: dict[str, str], pipeline: DemoPipeline) -> LakeAddress:
    bucket, _, prefix = pipeline.lake.removeprefix("s3://").partition("/")
    return LakeAddress(
        endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
        bucket=bucket,
        prefix=prefix,
        access_key_id=variables["AWS_ACCESS_KEY_ID"],
        secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region=variables["AWS_REGION"],
    )


def tally_command(state_dir: Path) -> str:
    """Return the shell command for `tally` on this stack, also if it is not on PATH or the state is not in .tally."""
    script = Path(sys.executable).with_name("tally")
    if script.is_relative_to(Path.cwd()):
        script = script.relative_to(Path.cwd())
    command = "tally" if shutil.which("tally") else shlex.quote(str(script))
    if state_dir == (Path.cwd() / STATE_DIR).resolve():
        return command
    return f"TALLYSTICK_STATE_DIR={shlex.quote(str(state_dir))} {command}"


def _print_addresses(
    info: StackInfo, workspace: Workspace, console: Console, pipeline: DemoPipeline
) -> None:
    tally = tally_command(workspace.state_dir)
    console.heading("the stack stays up")
    console.write(
        f"Airflow   {info.airflow_url}   user {info.airflow_user}, password {info.airflow_password}\n"
        f"S3        {info.variables['AWS_ENDPOINT_URL_S3']}   lake {pipeline.lake}\n"
        f"DAG, job  {workspace.project} (a copy: change it and press Clear)\n\n"
        f'Shell: eval "$({tally} local env)"   (then tally, airflow, aws and boto3 work on this stack)\n'
        f"       export TALLYSTICK_LAKE={pipeline.lake}\n"
        f"Try:   tally status\n"
        f"       tally verify\n"
        f'       tally sql "{pipeline.sample_sql}"\n'
        f"Stop:  {tally} local down"
    )


if __name__ == "__main__":
    sys.exit(main())
