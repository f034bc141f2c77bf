"""Nemeses that kill a server, fill the disk, and lose answers of S3."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from chaos.errors import MissedError
from chaos.moments import ANY, PLAN, SUBMIT
from chaos.records import OpenTransaction
from chaos.rounds import Nemesis, Round
from chaos.tap import Point, Sender, Trap, sender_of
from chaos.workspace import Workspace
from tallystick_devstack.process import ChildProcess, wait_until
from tallystick_devstack.testing.fault_proxy import NO_FAULT, HttpFault, Seen

OUTAGE_S_MAX = 4.0
# Four empty answers, about 2 s, were once treated as an empty log.
EMPTY_S_MIN, EMPTY_S_MAX = 20.0, 45.0
REFUSED_PART = 1 / 3
# Python uses another temporary folder if it cannot write the few bytes of a probe: leave one page free.
_FREE_BYTES = 4096
_ENOSPC = ("No space left on device", "Errno 28")
_ROOT = Point(name="root", method="PUT", path=r"root\.json$", sender=None)


def _broker(r: Round) -> None:
    _outage(r, "the broker", r.workspace.stack.kafka.process)


def _s3(r: Round) -> None:
    _outage(r, "the S3 server", r.workspace.stack.s3.process)


def _postgres(r: Round) -> None:
    _outage(r, "PostgreSQL", r.workspace.stack.postgres.process)


def _outage(r: Round, what: str, process: ChildProcess | None) -> None:
    outage_s = r.rng.random() * OUTAGE_S_MAX
    with r.at(ANY) as trap:
        kill_server(r, what, process, trap, outage_s=outage_s)


def kill_server(
    r: Round, what: str, process: ChildProcess | None, trap: Trap, *, outage_s: float
) -> None:
    """Kill a server, and start it again after the outage; a held request is released in between."""
    assert process is not None
    r.note(f"kill -9 of {what}, started again {outage_s:.1f} s later")
    process.kill()
    trap.released.set()
    again_at = time.monotonic() + outage_s
    wait_until(lambda: time.monotonic() >= again_at, deadline_s=60.0, what="the end of the outage")
    r.workspace.revive()


def _broker_empty(r: Round) -> None:
    """Let the broker answer plan and stage without records for some tens of seconds, from a drawn moment on."""
    quiet_s = EMPTY_S_MIN + r.rng.random() * (EMPTY_S_MAX - EMPTY_S_MIN)
    before = r.workspace.kafka_tap.emptied
    with r.at((*PLAN, *SUBMIT)) as trap, r.workspace.kafka_tap.quiet():
        r.note(f"the broker answers without records for {quiet_s:.0f} s")
        trap.released.set()
        ends_at = time.monotonic() + quiet_s
        r.until(lambda: time.monotonic() >= ends_at, "the end of the empty answers", poll_s=0.5)
    emptied = r.workspace.kafka_tap.emptied - before
    r.note(f"the broker sends records again; {emptied} answers were emptied")
    if not emptied:
        raise MissedError("nothing was fetched while the broker's answers were empty")


def _open_transaction(r: Round) -> None:
    """Kill the broker while a transaction is open: in the first day, whose plan waits, or after the last day."""
    inside, commit = r.rng.random() < 0.5, r.rng.random() < 0.5
    beyond = r.lake.days + 1
    day = 1 if inside else beyond
    opened = OpenTransaction(r.workspace.kafka, r.lake.name, day=day, rng=r.rng, log=r.log)
    r.note(f"a transaction is open {'inside' if inside else 'beyond the last day'}")
    # A plan that has to wait gets no further than its first read of the root.
    with r.at(PLAN[:1] if inside else ANY) as trap:
        if inside:
            trap.released.set()
            r.until(
                lambda: "up_for_reschedule" in {t["state"] for t in r.tries()},
                "a plan that waits",
                poll_s=0.5,
            )
        r.note("kill -9 of the broker")
        r.workspace.stack.kafka.process.kill()
        trap.released.set()
        r.workspace.revive()
    r.note(f"the transaction's end: {opened.end(commit=commit)}")
    if not inside:
        r.trigger(beyond)


# ---------------------------------------------------------------- the disk


def _disk_full(r: Round) -> None:
    with r.at((*PLAN, *SUBMIT)):
        r.workspace.disk.fill(but_bytes=_FREE_BYTES)
        r.note(f"the disk is full except for {_FREE_BYTES} bytes")
    try:
        r.until(
            lambda: any(_has_failed(t) for t in r.tries()),
            "a task that fails because of it",
            poll_s=0.5,
        )
        failed = [t for t in r.tries() if _has_failed(t)]
    finally:
        r.workspace.disk.drain()
    r.note("there is room again")
    if not any(words in r.log_of(t) for t in failed for words in _ENOSPC):
        raise MissedError("a task failed, but not because of the disk")


def _has_failed(task: dict[str, Any]) -> bool:
    return int(task["try_number"]) > 1 or task["state"] in ("up_for_retry", "failed")


def _on_small_disk(rng: random.Random, workspace: Workspace) -> dict[str, Any]:
    return {"days": 1, "environment": {"TMPDIR": str(workspace.disk.folder)}}


# ---------------------------------------------------------------- what S3 answers


@dataclass(slots=True)
class Refusals:
    """A rule: answer 503 to a random third of a lake's requests."""

    lake: str
    rng: random.Random
    refused: int = 0

    def __call__(self, seen: Seen) -> HttpFault:
        of_lake = f"/{self.lake}/" in seen.path or f"prefix={self.lake}" in seen.path
        if not of_lake or self.rng.random() >= REFUSED_PART:
            return NO_FAULT
        self.refused += 1
        return HttpFault(forward="never", answer=503, code="SlowDown")


def _refusing(r: Round) -> None:
    rule = Refusals(r.lake.name, random.Random(r.rng.random()))
    with r.workspace.tap.rule(rule):
        with r.at(PLAN[:1], hold=False):
            r.note("S3 answers 503 to a third of all requests")
        r.settle()
    r.note(f"{rule.refused} requests were refused")
    if not rule.refused:
        raise MissedError("no request was refused")


Kind = Literal["before", "after", "delay", "twice"]
_LOST: tuple[Literal["close", "reset"] | int, ...] = ("close", "reset", 500, 503)


@dataclass(slots=True)
class LostReplies:
    """A rule: `many` swaps of a lake, from the `first` on, get a fault; late copies are due `due_after` swaps later.

    `sender`: whose swaps get it; None: those of any process.
    """

    lake: str
    kind: Kind
    first: int
    many: int
    answer: Any
    due_after: int
    sender: Sender | None = None
    swaps: int = 0
    late: list[int] = field(default_factory=list)
    faulted: int = 0

    def __call__(self, seen: Seen) -> HttpFault:
        if not _ROOT.matches(seen, self.lake) or self.sender not in (None, sender_of(seen)):
            return NO_FAULT
        self.swaps += 1
        if not self.first <= self.swaps < self.first + self.many:
            return NO_FAULT
        self.faulted += 1
        match self.kind:
            case "before":
                return HttpFault(forward="never", answer=self.answer)
            case "after":
                return HttpFault(forward="once", answer=self.answer)
            case "twice":
                return HttpFault(forward="twice")
            case "delay":
                self.late.append(self.swaps)
                return HttpFault(forward="later", answer=self.answer)

    def arrives(self) -> bool:
        """Return True if the oldest late copy is due: `due_after` swaps were tried after it."""
        return bool(self.late) and self.swaps >= self.late[0] + self.due_after


def lost_replies(r: Round, kind: Kind, *, sender: Sender | None = None) -> LostReplies:
    """Draw which swaps of a round get the fault, and which."""
    answers = (*_LOST, "hang") if kind == "delay" else (*_LOST, "cut") if kind == "after" else _LOST
    # The first root, and a grant and a commit of each day: only these swaps are certain to occur. A compaction has two.
    certain = 2 if sender == "compact" else 1 + 2 * r.lake.days
    first = r.rng.randint(1, certain)
    return LostReplies(
        lake=r.lake.name,
        kind=kind,
        first=max(1, first - 1) if r.again else first,
        sender=sender,
        many=r.rng.randint(1, 2),
        answer=r.rng.choice(answers),
        due_after=r.rng.randint(1, 3),
    )


def _lose(r: Round, kind: Kind) -> None:
    rule = lost_replies(r, kind)
    r.note(f"{kind}: swaps {rule.first} to {rule.first + rule.many - 1}, answered {rule.answer}")
    with r.workspace.tap.rule(rule):
        r.begin()
        if kind == "delay":
            _deliver_late(r, rule)
        else:
            r.until(lambda: rule.faulted >= 1, "a swap that gets the fault")
        r.settle()
        deliver_rest(r, rule)


def _deliver_late(r: Round, rule: LostReplies) -> None:
    try:
        r.until(lambda: rule.faulted >= 1, "a swap that gets the fault")
        r.until(rule.arrives, "the moment for a late copy")
    except MissedError:
        if not rule.faulted:
            raise
        return
    rule.late.pop(0)
    r.note(f"a late copy of a swap arrives: {r.workspace.tap.release()}")


def deliver_rest(r: Round, rule: LostReplies) -> None:
    """Let the remaining late copies arrive now, after all runs have succeeded."""
    for _ in _releases(r, rule):
        r.note("a late copy of a swap arrived after the end")


def _releases(r: Round, rule: LostReplies) -> Iterator[int]:
    while rule.late:
        rule.late.pop(0)
        with suppress(IndexError):
            yield r.workspace.tap.release()


LOST: dict[Kind, str] = {
    "before": "the swap is lost on its way",
    "after": "the swap landed, its reply is lost",
    "delay": "a swap without an answer lands later",
    "twice": "a gateway sends the swap twice",
}


def _lost(kind: Kind, what: str) -> Nemesis:
    return Nemesis(name=f"swap-{kind}", what=what, inject=lambda r: _lose(r, kind))


SERVERS = (
    Nemesis(name="broker", what="kill -9 of the Kafka broker", inject=_broker),
    Nemesis(
        name="broker-empty",
        what="the broker answers without records for a while",
        inject=_broker_empty,
    ),
    Nemesis(name="s3", what="kill -9 of the S3 server", inject=_s3),
    Nemesis(name="postgres", what="kill -9 of PostgreSQL", inject=_postgres),
    Nemesis(
        name="open-transaction",
        what="kill -9 of the broker with an open transaction",
        inject=_open_transaction,
        again=False,
    ),
    Nemesis(
        name="disk-full",
        what="disk full under the attempt",
        inject=_disk_full,
        lake=_on_small_disk,
        ready=lambda workspace: workspace.disk.mount(),
    ),
    Nemesis(name="s3-503", what="S3 answers 503 to a third of requests", inject=_refusing),
    *(_lost(kind, what) for kind, what in LOST.items()),
)
