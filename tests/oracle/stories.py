"""What happens to a lake in the tests of the oracle: each story is good as long as tallystick is whole."""

from __future__ import annotations

from collections.abc import Callable

from oracle.scene import Log, Scene, older_transform

DAYS = 5
SAME = b'{"n": 7, "kind": "b"}'
BROKEN = (b'{"n": "seven", "kind": "b"}', b'{"n": 8, "kind"', None, b"")


def fill(log: Log) -> None:
    """Five days: values that are equal, dead letters, transactions of both ends; day 2 is aborted, day 4 is empty."""
    log.send(1, 40)
    log.send(1, 6, transaction="abort")
    log.send(1, [SAME, SAME, SAME, SAME, *BROKEN])
    log.send(1, 10, transaction="commit")
    log.send(2, 10, transaction="abort")
    log.send(3, [*BROKEN, SAME, SAME])
    log.send(3, 30)
    log.send(3, 4, transaction="abort")
    log.send(5, 20)


def days(scene: Scene) -> None:
    """A scheduled run of each day, in order; every task is run twice."""
    for number in range(1, DAYS + 1):
        scene.run(number, number + 1)


def first_day(scene: Scene) -> None:
    """Day 1 alone, which has some of everything."""
    scene.run(1, 2)
    scene.full_cover = False


def attempts(scene: Scene) -> None:
    """An attempt dies before its report, a second one is committed, and a third, of older code, wakes up afterwards."""
    plans = scene.plan(1, 4)
    scene.stage(plans, report=False)
    scene.commit(scene.stage(plans))
    for key in plans:
        scene.attempt(key, job=older_transform, report=True)
    scene.run(4, 6)


def replaced(scene: Scene) -> None:
    """Day 1 is replaced, and the zombie of its first run commits again what it had staged."""
    old = scene.run(1, 2)
    scene.run(2, 4)
    scene.run(1, 2, run="again", mode="replace")
    scene.commit(old)
    scene.run(4, 6)


def taken_over(scene: Scene) -> None:
    """A run has staged days 1 and 2 when another takes day 1 over and commits; then the first one wakes up."""
    zombie = scene.stage(scene.plan(1, 3, run="slow"))
    scene.run(1, 2, run="taker", take_over=True)
    scene.commit(zombie)
    scene.run(2, 3, run="filler")
    scene.run(3, 6)


def raced(scene: Scene) -> None:
    """While one commit is about to swap the root, another run commits."""
    first, second = scene.stage(scene.plan(1, 3)), scene.stage(scene.plan(3, 6))
    scene.store.before = lambda: scene.commit(second)
    scene.commit(first)


def doubted(scene: Scene, *, because: str = "read timed out") -> None:
    """A swap lands, its reply is lost, another run commits before anything is sent again."""
    first, second = scene.stage(scene.plan(1, 3)), scene.stage(scene.plan(3, 6))
    scene.store.lost_reply = because
    scene.store.after = lambda: scene.commit(second)
    scene.commit(first)


def conflicted(scene: Scene) -> None:
    """The same, and what is answered is 409, which proves nothing."""
    doubted(scene, because="HTTP 409 ConditionalRequestConflict")


def late(scene: Scene) -> None:
    """Records of day 1 arrive after day 1 was planned up to the end of the log, and before it is staged."""
    scene.log.send(1, 12)
    plans = scene.plan(1, 2)
    scene.log.send(1, 6)
    scene.log.send(2, 12)
    scene.commit(scene.stage(plans))
    scene.run(2, 3)
    scene.in_order = False


def recreated(scene: Scene) -> None:
    """After day 1 the topic is deleted and created anew, as long as before, with other records."""
    scene.log.send(1, 12)
    scene.log.send(2, 12)
    scene.run(1, 2)
    broker, topic = scene.log.broker, scene.log.topic
    broker.delete_topic(topic)
    broker.topic(2, name=topic, retention_ms=-1)
    other = Log(broker, scene.log.written.path.parent, topic)
    other.send(1, [b'{"n": 1000000, "kind": "z"}'] * 12)
    other.send(2, [b'{"n": 2000000, "kind": "z"}'] * 12)
    scene.run(2, 3)
    scene.full_cover = False


def expired(scene: Scene) -> None:
    """Retention takes half of day 2 after it was planned; only a run that accepts the loss goes on."""
    scene.log.send(1, 12)
    half = scene.log.send(2, 12)[5]
    scene.log.send(2, 6)
    scene.run(1, 2)
    plans = scene.plan(2, 3)
    assert half.offset is not None
    for number in range(2):
        scene.log.broker.delete_records(scene.log.topic, half.offset, number)
    scene.commit(scene.stage(plans))
    scene.run(2, 3, clear=1)
    scene.run(2, 3, clear=2, accept_loss=True)


# Whether the story writes its own topic, which nobody else may read.
Story = Callable[[Scene], None]
SHARED: tuple[Story, ...] = (
    days,
    first_day,
    attempts,
    replaced,
    taken_over,
    raced,
    doubted,
    conflicted,
)
OWN: tuple[Story, ...] = (late, recreated, expired)
