"""Scenarios: user actions on one pipeline, one after another. The scenarios of different pipelines run concurrently.

    @scenario("before")
    def staged_again(driver: Driver) -> Facts: ...

defines a session fixture of that name. When the first test requests one, the scenarios of all collected tests start,
each in its own thread. A scenario that takes another one as a parameter starts when that one has ended. Tests check
the facts that a scenario returns. If a test fails, its report shows the ledger, the runs and their last log lines.
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

from support.user_action_driver import ActionStack

T = TypeVar("T")

EVERY_TEST = [
    # Only the authors of kafka-python, PyIceberg and Airflow's clients can act on their warnings.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # The first test waits until the scenarios of all have used the cores: half an hour was not enough for a slow machine.
    pytest.mark.timeout(4500),
]


@dataclass(frozen=True)
class Scenario:
    """A function that performs user actions on one pipeline, and the scenarios that must run before it."""

    pipeline: str
    perform: Callable[..., Any]

    @property
    def requires(self) -> list[str]:
        """Names of the scenarios that this one continues."""
        return [name for name in inspect.signature(self.perform).parameters if name != "driver"]


SCENARIOS: dict[str, Scenario] = {}


def scenario(pipeline: str) -> Callable[[Callable[..., T]], Any]:
    """Register a function of a driver (and of earlier scenarios) as a scenario, and define a fixture with its result."""

    def register(perform: Callable[..., T]) -> Any:
        name = perform.__name__
        SCENARIOS[name] = Scenario(pipeline, perform)

        @pytest.fixture(scope="session", name=name)
        def facts(scenarios: Scenarios) -> Any:
            return scenarios.facts(name)

        return facts

    return register


@dataclass
class Scenarios:
    """The scenarios of this session, on one stack."""

    stack: ActionStack
    _results: dict[str, Future[Any]] = field(default_factory=dict)
    _elapsed_s: dict[str, float] = field(default_factory=dict)

    def start(self, names: Iterable[str]) -> None:
        """Start these scenarios and those that they require, all at once."""
        ordered = _with_required(names)
        self._results = {name: Future() for name in ordered}
        # A thread for each: Airflow, which has four slots, decides what runs at once. Daemons: if the session is
        # interrupted, nothing waits for them.
        for name in ordered:
            Thread(target=self._run, args=(name,), name=f"scenario {name}", daemon=True).start()

    def _run(self, name: str) -> None:
        current, result = SCENARIOS[name], self._results[name]
        try:
            required = {other: self._results[other].result() for other in current.requires}
            started = time.monotonic()
            facts = current.perform(self.stack.driver(current.pipeline), **required)
        except BaseException as error:  # noqa: BLE001 - the tests that use the scenario raise it
            result.set_exception(error)
        else:
            self._elapsed_s[name] = time.monotonic() - started
            result.set_result(facts)

    def facts(self, name: str) -> Any:
        """Return the result of a scenario after its end, or raise what it raised."""
        return self._results[name].result()

    def wait_for_all(self) -> None:
        """Wait for the end of every scenario."""
        wait(self._results.values())

    def history(self, names: Sequence[str]) -> str:
        """Return the history of these scenarios' pipelines so far, to find out why a test failed."""
        pipelines = dict.fromkeys(SCENARIOS[name].pipeline for name in names)
        return "\n\n".join(self.stack.driver(pipeline).history() for pipeline in pipelines)

    def durations(self) -> str:
        """Return how long each scenario took, the longest first."""
        longest = sorted(self._elapsed_s.items(), key=lambda item: -item[1])
        return "\n".join(f"{seconds:7.1f} s  {name}" for name, seconds in longest)


def _with_required(names: Iterable[str]) -> list[str]:
    """Return the names and those of the scenarios that they require, required ones first."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        for required in SCENARIOS[name].requires:
            add(required)
        ordered[name] = None

    for name in names:
        add(name)
    return list(ordered)


def scenarios_of(item: pytest.Item) -> list[str]:
    """Return the scenarios that a test uses."""
    fixtures: Iterator[str] = iter(getattr(item, "fixturenames", ()))
    return [name for name in fixtures if name in SCENARIOS]
