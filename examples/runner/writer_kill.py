"""The moments at which the process that stages or commits is killed, for an example that publishes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from examples.demo.kill_proxy import KillRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A write to S3 during which a task is killed. `text`: the moment, for the table at the end."""

    task: str
    rule: KillRule
    text: str


_ROOT = re.compile(r"/root\.json$")
BEFORE_REPORT = Moment(
    task="stage",
    rule=KillRule(path=re.compile(r"/attempts/[^/]+/[^/]+\.json$"), when="before"),
    text="of stage between upload and report",
)
BEFORE_SWAP = Moment(
    task="commit",
    rule=KillRule(path=_ROOT, when="before"),
    text="of commit between metadata and swap",
)
AFTER_SWAP = Moment(
    task="commit",
    rule=KillRule(path=_ROOT, when="after"),
    text="of commit between swap and reply",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterKill:
    """The process that was killed, and the moment."""

    pid: int
    command: str
    moment: Moment

    def __str__(self) -> str:
        return f"kill -9 {self.moment.text}"
