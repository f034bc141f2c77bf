"""Plays a page of the documentation as a reader does: its commands in one shell, its edits, and the output that it shows.

```sh      runs; the environment lasts until the end of the page
```text    the output of the block before it, read again until it is as shown: `...` is any text or any lines
```diff    an edit of the file that its first line names; each removed line must occur once
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

BLOCK = re.compile(r"^```(sh|text|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
POLL_S = 3.0
Kind = Literal["sh", "text", "diff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a page that is played."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One played block: seconds since the page was begun, and the last output of its commands."""

    block: Block
    at_s: float
    output: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that are played, in their order."""
    return [Block(kind=kind, text=text) for kind, text in BLOCK.findall(page)]  # type: ignore[arg-type]


def pattern_of(text: str) -> re.Pattern[str]:
    """Return a pattern for the output that a page shows; a line `...` is any number of lines, spaces may be more."""
    lines: list[str] = []
    for line in text.strip("\n").splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*")
            continue
        words = [
            re.escape(word).replace(r"\.\.\.", ".*") if word != "..." else ".*"
            for word in line.split()
        ]
        lines.append(r"[ \t]*" + r"[ \t]+".join(words) + r"[ \t]*\n")
    return re.compile("".join(lines))


def edited(source: str, diff: str) -> str:
    """Return a text with the lines of a diff replaced; raises AssertionError unless the removed lines occur once."""
    removed = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line.startswith("-"))
    added = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line.startswith("+"))
    assert removed, diff
    assert source.count(removed) == 1, f"expected once:\n{removed}\nfound in:\n{source}"
    return source.replace(removed, added)


@dataclass
class Player:
    """A reader of one page, in one folder, with one shell."""

    folder: Path
    environ: dict[str, str]
    deadline_s: float
    report: Callable[[str], None] = print
    started: float = field(default_factory=time.monotonic)
    last: str = ""

    def play(self, page: str) -> list[Played]:
        """Play all blocks; raises AssertionError with the block and its last output if one does not end as shown."""
        played: list[Played] = []
        for block in blocks_of(page):
            output = getattr(self, f"_{block.kind}")(block.text)
            at_s = time.monotonic() - self.started
            self.report(f"{at_s:7.1f} s  {block.kind:5} {block.text.splitlines()[0]}")
            played.append(Played(block=block, at_s=at_s, output=output))
        return played

    def _sh(self, text: str) -> str:
        self.last = text
        # Airflow finds a new DAG file within half a minute: until then a reader repeats the command.
        return self._until(text, lambda code, _: code == 0)

    def _text(self, text: str) -> str:
        pattern = pattern_of(text)
        return self._until(self.last, lambda _, out: pattern.fullmatch(out) is not None)

    def _diff(self, text: str) -> str:
        first, _, rest = text.partition("\n")
        file = self.folder / first.removeprefix("# ")
        file.write_text(edited(file.read_text(), rest))
        return ""

    def _until(self, text: str, done: Callable[[int, str], bool]) -> str:
        end = time.monotonic() + self.deadline_s
        while True:
            code, output, errors = self._run(text)
            if done(code, output):
                return output
            repeatable = text.startswith(("tally status", "tally sql", "tally dead", "airflow"))
            if not repeatable or time.monotonic() > end:
                raise AssertionError(f"{text}\nexit {code}\n{output}\n{errors}")
            time.sleep(POLL_S)

    def _run(self, text: str) -> tuple[int, str, str]:
        """Run a block, and keep the environment that it leaves."""
        kept = self.folder / ".environment"
        ran = subprocess.run(
            ["bash", "-c", f"set -e\n{text}\nenv -0 > {kept}"],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=self.deadline_s,
        )
        if ran.returncode == 0:
            self.environ = _environment(kept.read_text())
        return ran.returncode, ran.stdout, ran.stderr


def _environment(text: str) -> dict[str, str]:
    found: Mapping[str, str] = dict(line.partition("=")[::2] for line in text.split("\0") if line)
    return {name: value for name, value in found.items() if name not in ("_", "SHLVL")}
