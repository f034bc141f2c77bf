"""A commit while a publisher processes a backlog, in simulated time: each request takes 20 ms."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import greenlet
import pytest

from support.backlog import lake_with_backlog
from support.fake_output import Declared, FakeOutput, Wire
from support.small_lake import NOW
from tallystick.errors import SettingsError, Superseded
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.lake.room import OLD, PAUSE_MAX_S, RoomGiver, RoomRequest
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.publish import publish
from tallystick.outputs.port import Publication
from tallystick.runtime import Runtime
from tallystick.store import ETag, Listed, Outcome, Store, Stored
from tallystick.store.memory import MemoryStore
from tallystick.tables.rows import StoredRows
from tallystick.tables.staging import IcebergTables

FEED = "feed"
REQUEST_S = 0.02
BACKLOG = 12


class Simulated:
    """Actors in one thread; each continues at the time that it waits for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, greenlet.greenlet]] = []
        self._started = 0
        self._debt_s = 0.0

    def wait(self, seconds: float) -> None:
        """Let the other actors continue until that much time has passed."""
        hub = greenlet.getcurrent().parent
        if hub is None:
            # A thread of PyIceberg: the actor that waits for it waits that much longer at its next request.
            self._debt_s += seconds
            return
        self._add(seconds + self._debt_s, greenlet.getcurrent())
        self._debt_s = 0.0
        hub.switch()

    def start(self, work: Callable[[], object], *, after_s: float = 0.0) -> greenlet.greenlet:
        """Start an actor after that much time."""
        actor = greenlet.greenlet(work)
        self._add(after_s, actor)
        return actor

    def _add(self, seconds: float, actor: greenlet.greenlet) -> None:
        self._started += 1
        heapq.heappush(self._due, (self.now_s + seconds, self._started, actor))

    def run(self, until: Callable[[], bool]) -> None:
        """Advance time until the condition is true or no actor has anything left to do."""
        while self._due and not until():
            self.now_s, _, actor = heapq.heappop(self._due)
            actor.switch()

    def runtime(self, uuid: Callable[[], str]) -> Runtime:
        """Return a runtime with the simulated clock."""
        return Runtime(
            now=lambda: NOW + timedelta(seconds=int(self.now_s)),
            uuid=uuid,
            monotonic_s=lambda: self.now_s,
            sleep=self.wait,
            chance=lambda: 0.5,
        )


@dataclass
class Delayed:
    """A store whose requests take REQUEST_S each; those that `refuses` selects raise."""

    inner: Store
    time: Simulated
    uri: str = field(init=False)
    requests: list[str] = field(default_factory=list)
    refuses: Callable[[str], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.uri = self.inner.uri

    def _request(self, what: str) -> None:
        self.time.wait(REQUEST_S)
        self.requests.append(what)
        if self.refuses(what):
            raise SettingsError(f"{what} is refused.", hint="nothing.")

    def get(self, key: str) -> Stored | None:
        self._request(f"get {key}")
        return self.inner.get(key)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        self._request(f"create {key}")
        return self.inner.create(key, body)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        self._request(f"replace {key}")
        return self.inner.replace(key, body, expected=expected)

    def list(self, prefix: str) -> Iterator[Listed]:
        self._request(f"list {prefix}")
        return self.inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._request(f"delete {' '.join(keys)}")
        self.inner.delete(keys)

    def markers(self) -> list[str]:
        """Return the requests that concern markers."""
        return [what for what in self.requests if keys.ROOM_PREFIX in what]


@dataclass
class Scene:
    """A lake of some tables with a backlog for its outputs, and an hour that is staged and not committed."""

    tables: int = 4
    backlog: int = BACKLOG
    outputs: tuple[Declared, ...] = (Declared(),)
    time: Simulated = field(default_factory=Simulated)

    def __post_init__(self) -> None:
        store = MemoryStore(now=lambda: NOW + timedelta(seconds=int(self.time.now_s)))
        self.small, (self.staged,) = lake_with_backlog(
            self.tables, self.backlog, 1, store=store, outputs=self.outputs
        )
        self.published: list[float] = []
        self.wires = {output.name: Wire() for output in self.outputs}
        self.result: list[CommitResult] = []
        self.commit_store = Delayed(self.small.store, self.time)

    def lake(self, store: Store) -> Lake:
        return Lake(store, self.time.runtime(self.small.runtime.uuid), proven=True)

    def publisher(self) -> None:
        failed = publish(
            self.lake(Delayed(self.small.store, self.time)),
            {name: (lambda wire=wire: FakeOutput(wire)) for name, wire in self.wires.items()},
            rows_of=StoredRows,
            watch=lambda _: self.published.append(self.time.now_s),
        )
        assert failed == ()

    def committer(self) -> None:
        lake = self.lake(self.commit_store)
        tables = IcebergTables(self.commit_store, lake.runtime)
        plan_key, report_key = self.staged
        self.result.append(commit(lake, tables, plan_key=plan_key, report_key=report_key))

    def commit_s(self, *, begins_s: float = 0.0) -> float:
        """Return how long the commit takes that begins then."""
        self.time.start(self.committer, after_s=begins_s)
        began_s = self.time.now_s + begins_s
        self.time.run(lambda: bool(self.result))
        return self.time.now_s - began_s


def undisturbed_s(tables: int) -> float:
    return Scene(tables=tables, backlog=1).commit_s()


@pytest.mark.parametrize("tables", [1, 4, 12])
@pytest.mark.parametrize("begins_s", [0.3, 0.38, 0.46])
def test_a_commit_during_a_backlog_takes_at_most_twice_as_long(
    tables: int, begins_s: float
) -> None:
    scene = Scene(tables=tables)
    scene.time.start(scene.publisher)
    took_s = scene.commit_s(begins_s=begins_s)
    assert took_s <= 2 * undisturbed_s(tables)
    assert not scene.result[0].already
    # The publisher made room for the commit: it had not finished.
    assert len(scene.published) < BACKLOG
    scene.time.run(lambda: False)
    assert len(scene.published) == BACKLOG + 1
    assert scene.wires[FEED].duplicates() == []


def test_a_commit_during_the_backlogs_of_several_outputs_takes_at_most_twice_as_long() -> None:
    outputs = (Declared(), Declared(name="other", target="memory:other"))
    scene = Scene(outputs=outputs, backlog=6)
    for _ in range(2):
        scene.time.start(scene.publisher)
    assert scene.commit_s(begins_s=0.3) <= 2 * undisturbed_s(scene.tables)


@pytest.mark.parametrize("dropped", [(RoomGiver, "before"), (RoomRequest, "after_read")])
def test_without_room_the_same_commit_waits_for_the_backlog(dropped: tuple[type, str]) -> None:
    scene = Scene(tables=12)
    with patch.object(*dropped, lambda *_: None):
        scene.time.start(scene.publisher)
        took_s = scene.commit_s(begins_s=0.3)
    assert took_s > 2 * undisturbed_s(12)
    assert len(scene.published) >= BACKLOG


def test_the_marker_is_deleted_after_the_commit() -> None:
    scene = Scene(backlog=1)
    scene.commit_s()
    (created, deleted) = scene.commit_store.markers()
    assert created.removeprefix("create ") == deleted.removeprefix("delete ")
    assert scene.small.keys(keys.PROBE_PREFIX) == []


def test_the_marker_is_deleted_after_a_commit_that_is_refused() -> None:
    scene = Scene(backlog=1)

    def taken_over(snapshot: Any) -> Any:
        raise Superseded("taken over meanwhile.", hint="nothing.")

    asking = RoomRequest(store=scene.small.store, runtime=scene.small.runtime, after_losses=0)
    with pytest.raises(Superseded):
        scene.small.lake.swap(taken_over, turn=asking)
    assert scene.small.keys(keys.PROBE_PREFIX) == []


def test_without_anything_pending_no_marker_is_written() -> None:
    scene = Scene(backlog=0)
    scene.commit_s()
    assert scene.commit_store.markers() == []


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_a_commit_succeeds_if_the_store_refuses_markers(verb: str) -> None:
    scene = Scene(backlog=1)
    scene.commit_store.refuses = lambda what: what.startswith(f"{verb} {keys.ROOM_PREFIX}")
    scene.commit_s()
    assert not scene.result[0].already


def test_a_publisher_continues_if_the_store_refuses_to_list_markers() -> None:
    scene = Scene(backlog=2)
    with patch.object(
        Delayed, "refuses", staticmethod(lambda what: what == f"list {keys.ROOM_PREFIX}")
    ):
        scene.time.start(scene.publisher)
        scene.time.run(lambda: False)
    assert len(scene.published) == 2


def test_the_marker_of_a_killed_commit_delays_a_publisher_once() -> None:
    scene = Scene()
    scene.small.store.create(keys.room("a" * 32), b"")
    scene.time.start(scene.publisher)
    scene.time.run(lambda: False)
    assert len(scene.published) == BACKLOG
    assert scene.published[0] > PAUSE_MAX_S
    assert scene.published[-1] < 2 * PAUSE_MAX_S


def test_an_old_marker_delays_no_publisher() -> None:
    scene = Scene()
    scene.small.store.create(keys.room("a" * 32), b"")
    scene.time.now_s = OLD.total_seconds() + 1.0
    began_s = scene.time.now_s
    scene.time.start(scene.publisher)
    scene.time.run(lambda: False)
    assert len(scene.published) == BACKLOG
    assert scene.published[-1] - began_s < PAUSE_MAX_S


def test_a_publisher_continues_although_one_marker_follows_another() -> None:
    scene = Scene(backlog=3)

    def marks() -> None:
        for number in range(600):
            key = keys.room(f"{number:032x}")
            scene.small.store.create(key, b"")
            scene.time.wait(PAUSE_MAX_S / 2)
            scene.small.store.delete([key])

    scene.time.start(marks)
    scene.time.start(scene.publisher, after_s=1.0)
    scene.time.run(lambda: len(scene.published) == 3)
    assert len(scene.published) == 3
    # Two swaps per interval, a pause before each, and the first swap after a pause.
    assert scene.published[-1] < 7 * PAUSE_MAX_S


def test_a_pause_loses_nothing_that_was_prepared() -> None:
    scene = Scene(backlog=1)
    prepared: list[Publication] = []
    real = FakeOutput.prepare

    def recorded(self: FakeOutput, publication: Publication) -> None:
        prepared.append(publication)
        real(self, publication)
        scene.small.store.create(keys.room("b" * 32), b"")

    with patch.object(FakeOutput, "prepare", recorded):
        scene.time.start(scene.publisher)
        scene.time.run(lambda: False)
    assert len(prepared) == 1
    assert len(scene.published) == 1
