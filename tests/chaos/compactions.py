"""Nemeses whose victim is `tally compact`: killed, frozen, without S3, and with swaps whose replies are lost.

All days are committed first. Then a day is replaced while its rows, and those of the other day, are being moved.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil

from chaos.errors import MissedError
from chaos.moments import COMPACT, REPORT, draw
from chaos.processes import ZOMBIE_S
from chaos.rounds import MOMENT_S, Nemesis, Round
from chaos.servers import LOST, OUTAGE_S_MAX, Kind, deliver_rest, kill_server, lost_replies
from chaos.tap import Trap
from chaos.victims import freeze, is_alive, kill, thaw
from chaos.workspace import Workspace
from tallystick.errors import SettingsError
from tallystick_devstack.process import wait_until

_REPORTED = next(point for point in REPORT if point.when == "after")


@contextmanager
def _replacing(r: Round) -> Iterator[None]:
    """Commit all days, press Trigger to replace one, and let compactions begin when the block does.

    In half of the rounds, compactions begin only when the replacement is about to commit.
    """
    late, day = r.rng.random() < 0.5, r.rng.randint(1, r.lake.days)
    with r.compactor.paused():
        r.catch_up()
        r.settle()
        with r.workspace.tap.trap(_REPORTED, r.lake.name, hold=False) as reported:
            r.trigger(day, mode="replace")
            r.note(f"day {day} is replaced")
            if late:
                r.until(reported.sprung.is_set, "the report of the replacement")
    yield


@contextmanager
def _at(r: Round, *, hold: bool | None = None) -> Iterator[tuple[Trap, psutil.Process]]:
    """Wait for a drawn moment of a compaction during a replacement; yield the trap and the compaction's process."""
    moment = draw(r.rng, COMPACT, hold=r.hold if hold is None else hold)
    r.note(f"moment: {moment}")
    with ExitStack() as stack:
        trap = stack.enter_context(
            r.workspace.tap.trap(moment.point, r.lake.name, hold=moment.hold)
        )
        stack.enter_context(_replacing(r))
        # A compaction does not depend on the runs: it always has files to move.
        _wait(trap.sprung.is_set, f"the moment ({moment})")
        inject_at = time.monotonic() + moment.delay_s
        wait_until(
            lambda: time.monotonic() >= inject_at, deadline_s=60.0, what="the end of the delay"
        )
        running = r.compactor.current
        if running is None or running.has_ended:
            raise MissedError(f"the compaction ended before {moment}")
        yield trap, running.process


def _wait(check: Callable[[], bool], what: str) -> None:
    """Wait until `check` is true; raises MissedError after the deadline."""
    try:
        wait_until(check, deadline_s=MOMENT_S, what=what)
    except SettingsError as error:
        raise MissedError(str(error)) from error


def _compact(r: Round) -> None:
    collects = r.rng.random() < 0.5
    with _at(r) as (trap, victim):
        r.note(f"kill -9 of tally compact {victim.pid}")
        kill(victim)
        if collects:
            trap.released.set()
            ended = r.compactor.collect()
            r.note(f"gc, with what it left: exit code {ended.code}")
            if ended.code != 0:
                raise r.violation(f"tally gc ended with {ended}")


def _frozen(r: Round) -> None:
    """Freeze a compaction while its rows are replaced; others may move them, or gc cancel its grant; let it continue."""
    overtaken, cancelled, in_flight = (r.rng.random() < 0.5 for _ in range(3))
    with _at(r, hold=True) as (trap, victim):
        frozen = freeze([victim])
        r.note(f"frozen: tally compact {victim.pid}")
        try:
            if not in_flight:
                trap.released.set()
            r.settle()
            commands = [("tally compact", r.compactor.compact)] if overtaken else []
            if cancelled:
                commands.append(("tally gc", lambda: r.compactor.collect(cancel_after="0s")))
            for name, command in commands:
                ended = command()
                r.note(f"{name} in the meantime: exit code {ended.code}")
                if ended.code != 0:
                    raise r.violation(f"{name} ended with {ended}")
            trap.released.set()
        finally:
            thaw(frozen)
        r.note("thawed")
        try:
            wait_until(lambda: not is_alive(victim), deadline_s=ZOMBIE_S, what="its end")
        except SettingsError as error:
            raise r.violation(f"the thawed compaction does not end: {error}") from error


def _s3(r: Round) -> None:
    outage_s = r.rng.random() * OUTAGE_S_MAX
    with _at(r) as (trap, _):
        kill_server(r, "the S3 server", r.workspace.stack.s3.process, trap, outage_s=outage_s)


def _lose(r: Round, kind: Kind) -> None:
    rule = lost_replies(r, kind, sender="compact")
    last = rule.first + rule.many - 1
    r.note(f"{kind}: swaps {rule.first} to {last} of compactions, answered {rule.answer}")
    with r.workspace.tap.rule(rule), _replacing(r):
        _wait(lambda: rule.faulted >= 1, "a swap that gets the fault")
        r.settle()
        deliver_rest(r, rule)


def _lost(kind: Kind, what: str) -> Nemesis:
    return _nemesis(f"compact-swap-{kind}", f"of a compaction: {what}", lambda r: _lose(r, kind))


def _two_days(_rng: random.Random, _workspace: Workspace) -> dict[str, Any]:
    return {"days": 2}


def _nemesis(name: str, what: str, inject: Any) -> Nemesis:
    return Nemesis(name=name, what=what, inject=inject, lake=_two_days, again=False)


COMPACTIONS = (
    _nemesis("compact", "kill -9 of tally compact", _compact),
    _nemesis("frozen-compact", "SIGSTOP of tally compact while a day is replaced", _frozen),
    _nemesis("compact-s3", "kill -9 of the S3 server during tally compact", _s3),
    *(_lost(kind, what) for kind, what in LOST.items()),
)
