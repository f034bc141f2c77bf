"""The demo's workspace: an empty state folder, a copy of the project that it may change, and the filled topic."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

from examples.demo.console import Console
from examples.demo.flights import break_some, in_batches, read_flights
from examples.demo.pipelines import DemoPipeline
from examples.demo.produce import create_topic, produce
from tallystick.errors import SettingsError
from tallystick_devstack.info import is_state_dir, is_state_name, read_stack, supervisor_pid
from tallystick_devstack.stack import down

TOPIC = "flights"
_MARK = "tallystick-demo.mark"
_MARK_TEXT = (
    "tallystick-demo/1: the demo may remove what a stack and the demo put into this folder\n"
)
_DEMO = "demo"
_PROJECT = "project"
_MOVED = "before-demo"
_KAFKA_S = 900.0  # the first start downloads it
_POLL_S = 0.1


class Workspace:
    """The demo's folders: `state_dir` is that of the stack; it also contains a mark, `demo/` and `project/`."""

    def __init__(self, state_dir: Path, console: Console, pipeline: DemoPipeline) -> None:
        self.state_dir = state_dir.resolve()
        self.project = self.state_dir / _PROJECT
        self.sent = self.state_dir / _DEMO / "sent.parquet"
        self.job = self.project / "spark_jobs" / f"{pipeline.name}.py"
        self.dag = self.project / "dags" / f"{pipeline.name}.py"
        self._console = console
        self._cancelled = threading.Event()

    def clear(self) -> None:
        """Stop an earlier demo and remove its topic, lake and Airflow.

        The state of a stack that the demo did not create is moved to a subfolder, not removed. Only names that a stack
        or the demo creates are touched. Raises SettingsError if such a stack is running there, and for a folder with
        other files and no state of a stack. Safe to repeat: the result is a folder with the demo's mark and no state.
        """
        from_demo = self._is_demo_state()
        if not from_demo and self._is_not_empty() and not is_state_dir(self.state_dir):
            raise SettingsError(
                f"{self.state_dir} is not empty, and contains no state of a stack.",
                hint="set --state to a folder that is empty or does not exist: the demo removes what it creates there.",
            )
        if supervisor_pid(self.state_dir) is not None:
            if not from_demo:
                raise SettingsError(
                    f"a stack that the demo did not start runs in {self.state_dir}.",
                    hint="stop it with `tally local down` (its state is kept), or set another --state.",
                )
            self._console.log("stopping the earlier demo's stack")
            down(self.state_dir)
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        left = sorted(p for p in self.state_dir.iterdir() if _is_created_here(p.name))
        if left and from_demo:
            self._console.log("removing the state of the earlier demo")
            for path in left:
                _remove(path)
        elif left:
            target = self.state_dir / f"{_MOVED}-{int(time.time())}"
            self._console.log(f"moving a state that the demo did not create to {target}")
            target.mkdir(mode=0o700)
            # Description and lock last: if this is interrupted, they still mark the folder as that of a stack.
            for path in sorted(left, key=lambda p: (p.is_file(), p.suffix != ".log")):
                path.rename(target / path.name)
        (self.state_dir / _MARK).write_text(_MARK_TEXT)
        (self.state_dir / _DEMO).mkdir(mode=0o700)

    def _is_demo_state(self) -> bool:
        try:
            return (self.state_dir / _MARK).read_text() == _MARK_TEXT
        except (OSError, ValueError):
            return False

    def _is_not_empty(self) -> bool:
        return self.state_dir.exists() and any(
            not path.name.startswith(_MOVED) for path in self.state_dir.iterdir()
        )

    def copy_project(self) -> None:
        """Copy DAGs and jobs, so that the demo may change them. Safe to repeat: the copy is overwritten."""
        source = Path(__file__).resolve().parents[2]
        for name, file in (("dags", self.dag.name), ("spark_jobs", self.job.name)):
            if not (source / name / file).is_file():
                raise SettingsError(
                    f"{source / name} does not contain the demo's {file}.",
                    hint="run the demo from a clone of the repository (`make demo`).",
                )
            shutil.copytree(
                source / name,
                self.project / name,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        (self.project / "plugins").mkdir(exist_ok=True)

    def fill_topic(self) -> None:
        """Prepare the flights, wait until Kafka runs, create the topic and send everything."""
        flights = read_flights()
        batches = in_batches(break_some(flights))
        kafka = self._kafka()
        began = time.monotonic()
        create_topic(kafka, TOPIC)
        count = produce(kafka, TOPIC, batches, sent=self.sent)
        aborted = sum(len(b.flights) for b in batches if b.end == "aborted")
        broken = sum(f.kind != "ok" for b in batches for f in b.flights if b.end != "aborted")
        self._console.log(
            f"topic {TOPIC}: {count:,} records sent in {time.monotonic() - began:.1f} s: {len(flights):,} flights, "
            f"{broken} of them broken on purpose, and {aborted} copies in a transaction that was aborted"
        )

    def cancel(self) -> None:
        """Make `fill_topic`, in another thread, end early."""
        self._cancelled.set()

    def _kafka(self) -> dict[str, str]:
        deadline = time.monotonic() + _KAFKA_S
        while not self._cancelled.wait(_POLL_S) and time.monotonic() < deadline:
            info = read_stack(self.state_dir)
            part = info.parts.get("kafka") if info is not None else None
            if info is not None and part is not None and part.state == "running":
                return info.kafka_client()
        raise SettingsError("Kafka did not start.", hint="read the output above.")


def _is_created_here(name: str) -> bool:
    return name in (_DEMO, _PROJECT) or is_state_name(name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def set_environment(pipeline: DemoPipeline) -> None:
    """Set the lake URI and a short retry delay for the pipeline's DAG, by variables that the stack passes on.

    Safe to repeat: the same values.
    """
    os.environ[pipeline.warehouse_env] = pipeline.lake
    os.environ["TALLYSTICK_DEMO_RETRY_DELAY_S"] = "2"
