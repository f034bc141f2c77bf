"""The demo's ground: an empty state folder, a copy of the project to play with, and the topic full of flights."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

from examples.demo.example import Example
from examples.demo.flights import break_some, in_batches, read_flights
from examples.demo.produce import create_topic, produce
from examples.demo.story import Story
from tallystick.errors import SettingsError
from tallystick_devstack.info import is_state_dir, is_state_name, read_stack, supervisor_pid
from tallystick_devstack.stack import down

TOPIC = "flights"
_MARK = "tallystick-demo.mark"
_MARK_TEXT = (
    "tallystick-demo/1: the demo may remove what a stack and the demo put into this folder\n"
)
_OWN = "demo"
_PROJECT = "project"
_ASIDE = "before-demo"
_KAFKA_S = 900.0  # the first start downloads it
_POLL_S = 0.1


class Ground:
    """Where everything of the demo lies: `state_dir` is the stack's, with a mark, `demo/` and `project/` in it."""

    def __init__(self, state_dir: Path, story: Story, example: Example) -> None:
        self.state_dir = state_dir.resolve()
        self.project = self.state_dir / _PROJECT
        self.sent = self.state_dir / _OWN / "sent.parquet"
        self.job = self.project / "spark_jobs" / f"{example.name}.py"
        self.dag = self.project / "dags" / f"{example.name}.py"
        self._story = story
        self._give_up = threading.Event()

    def clear(self) -> None:
        """Stop an earlier demo and begin anew: its topic, lake and Airflow are removed.

        A stack's state that no demo made is moved aside inside the folder, not removed. Only names that a stack or a
        demo makes are touched. Raises SettingsError where a stack that no demo made runs there, and for a folder that
        holds something and is no stack's. Safe to repeat: the end is a folder with our mark and nothing of a stack.
        """
        ours = self._is_ours()
        if not ours and self._holds_something() and not is_state_dir(self.state_dir):
            raise SettingsError(
                f"{self.state_dir} is not empty, and holds no state of a stack.",
                hint="give --state a folder that is empty or does not exist: the demo removes what it made there.",
            )
        if supervisor_pid(self.state_dir) is not None:
            if not ours:
                raise SettingsError(
                    f"a stack that no demo made runs in {self.state_dir}.",
                    hint="stop it with `tally local down` (its state is kept), or give another --state.",
                )
            self._story.say("stopping the earlier demo's stack")
            down(self.state_dir)
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        left = sorted(p for p in self.state_dir.iterdir() if _is_made(p.name))
        if left and ours:
            self._story.say("removing the state of the earlier demo")
            for path in left:
                _remove(path)
        elif left:
            aside = self.state_dir / f"{_ASIDE}-{int(time.time())}"
            self._story.say(f"moving a state that no demo made to {aside}")
            aside.mkdir(mode=0o700)
            # Description and lock last: by them the folder is known for a stack's, should this be interrupted.
            for path in sorted(left, key=lambda p: (p.is_file(), p.suffix != ".log")):
                path.rename(aside / path.name)
        (self.state_dir / _MARK).write_text(_MARK_TEXT)
        (self.state_dir / _OWN).mkdir(mode=0o700)

    def _is_ours(self) -> bool:
        try:
            return (self.state_dir / _MARK).read_text() == _MARK_TEXT
        except (OSError, ValueError):
            return False

    def _holds_something(self) -> bool:
        return self.state_dir.exists() and any(
            not path.name.startswith(_ASIDE) for path in self.state_dir.iterdir()
        )

    def copy_project(self) -> None:
        """Copy DAGs and jobs, so that the demo may change them. Safe to repeat: the copy is written over."""
        source = Path(__file__).resolve().parents[2]
        for name, file in (("dags", self.dag.name), ("spark_jobs", self.job.name)):
            if not (source / name / file).is_file():
                raise SettingsError(
                    f"{source / name} does not hold the demo's {file}.",
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
        self._story.say(
            f"topic {TOPIC}: {count:,} records sent in {time.monotonic() - began:.1f} s: {len(flights):,} flights, "
            f"{broken} of them broken on purpose, and {aborted} copies in a transaction that was aborted"
        )

    def give_up(self) -> None:
        """Let `fill_topic` end early, in another thread."""
        self._give_up.set()

    def _kafka(self) -> dict[str, str]:
        deadline = time.monotonic() + _KAFKA_S
        while not self._give_up.wait(_POLL_S) and time.monotonic() < deadline:
            info = read_stack(self.state_dir)
            part = info.parts.get("kafka") if info is not None else None
            if info is not None and part is not None and part.state == "running":
                return info.kafka_client()
        raise SettingsError("Kafka did not start.", hint="read the lines above.")


def _is_made(name: str) -> bool:
    return name in (_OWN, _PROJECT) or is_state_name(name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def set_environment(example: Example) -> None:
    """Tell the example's DAG, by variables that the stack hands on, where its lake is and to retry soon.

    Safe to repeat: the same values.
    """
    os.environ[example.warehouse_env] = example.lake
    os.environ["TALLYSTICK_DEMO_RETRY_DELAY_S"] = "2"
