"""Scenarios: what happens to a lake in the tests of the oracle. The unchanged product passes the audit in each."""

from __future__ import annotations

from collections.abc import Callable

from oracle.scene import Scene, TopicLog, narrower_transform, older_transform

DAYS = 5
SAME = b'{"n": 7, "kind": "b"}'
BROKEN = (b'{"n": "seven", "kind": "b"}', b'{"n": 8, "kind"', None, b"")


def fill(log: TopicLog) -> None:
    """Fill five days: equal values, dead letters, committed and aborted transactions. Day 2 is aborted, day 4 empty."""
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
    """Run each day in order, every task twice."""
    for number in range(1, DAYS + 1):
        scene.run(number, number + 1)


def first_day(scene: Scene) -> None:
    """Run day 1 only. It has records of every kind."""
    scene.run(1, 2)
    scene.full_cover = False


def attempts(scene: Scene) -> None:
    """Kill an attempt before its report, commit a second one, then resume a third one that runs older code."""
    plans = scene.plan(1, 4)
    scene.stage(plans, report=False)
    scene.commit(scene.stage(plans))
    for key in plans:
        scene.attempt(key, job=older_transform, report=True)
    scene.run(4, 6)


def replaced(scene: Scene) -> None:
    """Replace day 1. Then the zombie of its first run commits again what it had staged."""
    old = scene.run(1, 2)
    scene.run(2, 4)
    scene.run(1, 2, run="again", mode="replace")
    scene.commit(old)
    scene.run(4, 6)


def taken_over(scene: Scene) -> None:
    """Stage days 1 and 2, let another run take over day 1 and commit, then resume the first run."""
    zombie = scene.stage(scene.plan(1, 3, run="slow"))
    scene.run(1, 2, run="taker", take_over=True)
    scene.commit(zombie)
    scene.run(2, 3, run="filler")
    scene.run(3, 6)


def raced(scene: Scene) -> None:
    """Commit another run immediately before one commit swaps the root."""
    first, second = scene.stage(scene.plan(1, 3)), scene.stage(scene.plan(3, 6))
    scene.store.before = lambda: scene.commit(second)
    scene.commit(first)


def reply_lost(scene: Scene, *, because: str = "read timed out") -> None:
    """Lose the reply of a swap that is applied. Another run commits before anything is sent again."""
    first, second = scene.stage(scene.plan(1, 3)), scene.stage(scene.plan(3, 6))
    scene.store.lost_reply = because
    scene.store.after = lambda: scene.commit(second)
    scene.commit(first)


def conflict_reply(scene: Scene) -> None:
    """Lose the reply in the same way, but return 409, which proves nothing."""
    reply_lost(scene, because="HTTP 409 ConditionalRequestConflict")


def changed(scene: Scene) -> None:
    """Run with a narrower type, another name and another partitioning, then with the final ones.

    A plan of the older declaration is staged before the change and committed after it; if it is refused, its run is
    cleared.
    """
    scene.deploy(narrower=True)
    scene.commit(scene.stage(scene.plan(1, 2), job=narrower_transform))
    early = scene.stage(scene.plan(3, 4), job=narrower_transform)
    scene.deploy(narrower=False)
    scene.run(2, 3)
    scene.run(4, 6)
    scene.commit(early)
    if scene.refused:
        scene.run(3, 4, clear=1)


def late(scene: Scene) -> None:
    """Send records of day 1 after day 1 was planned up to the end of the log, and before it is staged."""
    scene.log.send(1, 12)
    plans = scene.plan(1, 2)
    scene.log.send(1, 6)
    scene.log.send(2, 12)
    scene.commit(scene.stage(plans))
    scene.run(2, 3)
    scene.in_order = False


def recreated(scene: Scene) -> None:
    """Delete the topic after day 1 and create it again, with as many records as before, but other ones."""
    scene.log.send(1, 12)
    scene.log.send(2, 12)
    scene.run(1, 2)
    broker, topic = scene.log.broker, scene.log.topic
    broker.delete_topic(topic)
    broker.topic(2, name=topic, retention_ms=-1)
    other = TopicLog(broker, scene.log.written.path.parent, topic)
    other.send(1, [b'{"n": 1000000, "kind": "z"}'] * 12)
    other.send(2, [b'{"n": 2000000, "kind": "z"}'] * 12)
    scene.run(2, 3)
    scene.full_cover = False


def expired(scene: Scene) -> None:
    """Delete half of day 2 by retention after it was planned. Only a run that accepts the loss can continue."""
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


# Scenarios in SHARED read the shared topic. Those in OWN write to a topic of their own.
Scenario = Callable[[Scene], None]
SHARED: tuple[Scenario, ...] = (
    days,
    first_day,
    attempts,
    replaced,
    taken_over,
    raced,
    reply_lost,
    conflict_reply,
    changed,
)
OWN: tuple[Scenario, ...] = (late, recreated, expired)
