"""Stories: what is pressed on one pipeline, one after another, while the stories of other pipelines go on beside it.

    @story("before")
    def staged_again(desk: Desk) -> Facts: ...

makes a fixture of that name, for the whole session. When the first test asks for one, the stories of all collected
tests start, each in a thread of its own; a story that names an earlier one begins when that has ended. Tests ask for a
story's facts and say what must hold; of a story that failed, the ledger, the runs and their last log lines are told.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, TypeVar

import pytest

from support.door_desk import DoorStack

T = TypeVar("T")


@dataclass(frozen=True)
class Story:
    """A story, the pipeline that it is about, and the earlier stories that it goes on from."""

    pipeline: str
    tell: Callable[..., Any]

    @property
    def after(self) -> list[str]:
        """Names of the earlier stories."""
        return [name for name in inspect.signature(self.tell).parameters if name != "desk"]


STORIES: dict[str, Story] = {}


def story(pipeline: str) -> Callable[[Callable[..., T]], Any]:
    """Make a function of a desk (and of earlier stories) a story, and a fixture that returns what it returned."""

    def register(tell: Callable[..., T]) -> Any:
        name = tell.__name__
        STORIES[name] = Story(pipeline, tell)

        @pytest.fixture(scope="session", name=name)
        def facts(stories: Stories) -> Any:
            return stories.facts(name)

        return facts

    return register


@dataclass
class Stories:
    """The stories that are told in this session, on one stack."""

    doors: DoorStack
    _told: dict[str, Future[Any]] = field(default_factory=dict)
    _took_s: dict[str, float] = field(default_factory=dict)

    def begin(self, names: Iterable[str]) -> None:
        """Start the stories of these names, and those that they go on from, all at once."""
        wanted = _with_earlier(names)
        self._told = {name: Future() for name in wanted}
        # A thread for each: what runs at once is Airflow's business, which has four slots. Daemons: when a session is
        # broken off, nobody waits for them.
        for name in wanted:
            Thread(target=self._tell, args=(name,), name=f"story {name}", daemon=True).start()

    def _tell(self, name: str) -> None:
        it, told = STORIES[name], self._told[name]
        try:
            earlier = {other: self._told[other].result() for other in it.after}
            began = time.monotonic()
            facts = it.tell(self.doors.desk(it.pipeline), **earlier)
        except BaseException as error:  # noqa: BLE001 - the tests that ask for the story raise it
            told.set_exception(error)
        else:
            self._took_s[name] = time.monotonic() - began
            told.set_result(facts)

    def facts(self, name: str) -> Any:
        """What a story returned, once it has ended; raises what it raised."""
        return self._told[name].result()

    def wait_for_all(self) -> None:
        """Wait until no story goes on."""
        wait(self._told.values())

    def of(self, names: Sequence[str]) -> str:
        """What happened in these stories so far, for whoever has to find out why a test failed."""
        pipelines = dict.fromkeys(STORIES[name].pipeline for name in names)
        return "\n\n".join(self.doors.desk(pipeline).story() for pipeline in pipelines)

    def timetable(self) -> str:
        """How long each story took, the longest first."""
        longest = sorted(self._took_s.items(), key=lambda one: -one[1])
        return "\n".join(f"{seconds:7.1f} s  {name}" for name, seconds in longest)


def _with_earlier(names: Iterable[str]) -> list[str]:
    """The names with those that they go on from, earlier ones first."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        for earlier in STORIES[name].after:
            add(earlier)
        ordered[name] = None

    for name in names:
        add(name)
    return list(ordered)


def stories_of(item: pytest.Item) -> list[str]:
    """The stories that a test asks for."""
    asked: Iterator[str] = iter(getattr(item, "fixturenames", ()))
    return [name for name in asked if name in STORIES]
