"""The crash table: what can die or happen between two requests, what is left, and what makes it right.

Comments in the code cite these codes (`# C9: ...`). The page adds the modules that cite each code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PRODUCT = Path(__file__).parents[2] / "plugins" / "tallystick"
CODE = re.compile(r"\b[CI]\d{1,2}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One line of the crash table."""

    code: str
    event: str
    left: str
    repair: str


CRASHES = tuple(
    Crash(code=code, event=event, left=left, repair=repair)
    for code, event, left, repair in (
        ("C1", "the plan task dies before it writes a plan object", "nothing", "the retry plans"),
        (
            "C2",
            "the plan task dies after it wrote a plan, before the swap",
            "a plan that no root names",
            "the retry plans again; gc deletes the plan",
        ),
        (
            "C3",
            "the plan task dies after the swap",
            "a grant",
            "the retry is the same request, and gets the same plan",
        ),
        (
            "C4",
            "a Spark task dies after an upload",
            "a file under the attempt's prefix that no result names",
            "Spark's retry uploads under a new name",
        ),
        (
            "C5",
            "the driver dies before the report",
            "files that no report names",
            "the retry is another attempt, with another prefix",
        ),
        (
            "C6",
            "the driver dies after the report",
            "a report that no XCom names",
            "the retry stages again",
        ),
        ("C7", "the commit task dies before the metadata", "nothing", "the retry commits"),
        (
            "C8",
            "the commit task dies after the metadata, before the PUT",
            "metadata that no root names",
            "the retry writes its own",
        ),
        (
            "C9",
            "the reply of the PUT is lost, and the PUT was applied",
            "a commit",
            "the same PUT again gets 412; the decision on the root that is read then is AlreadyCommitted",
        ),
        (
            "C10",
            "the reply of the PUT is lost, and the PUT was not applied",
            "still a grant",
            "the same PUT again is applied",
        ),
        (
            "C11",
            "the PUT is delayed and arrives after the retry",
            "a commit, once",
            "the retry changed the ETag: the late copy gets 412",
        ),
        (
            "C12",
            "the task dies after the commit, before it reports success",
            "a commit",
            "the retry returns AlreadyCommitted",
        ),
        (
            "C13",
            "gc runs between any two of these",
            "fewer objects",
            "what a root, grant or retained version needs stays; cancelled grants are Superseded; swaps decide again",
        ),
        (
            "C14",
            "a second attempt or another run between any two of these",
            "one more plan or report",
            "the root decides: one is granted, the other leaves the interval out",
        ),
        (
            "C15",
            "a deploy between any two of these",
            "a plan of the old job",
            "stage refuses a job that is not the planned one: clear `plan`",
        ),
    )
)


def cited() -> dict[str, list[str]]:
    """Return the modules of the product that cite each code C1, C2, ... and I1, I2, ..., by code."""
    found: dict[str, list[str]] = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        for code in sorted(set(_codes(path.read_text()))):
            found.setdefault(code, []).append(path.relative_to(PRODUCT).as_posix())
    return found


def _codes(text: str) -> Iterator[str]:
    """Yield the codes of a source text; a span such as `C9 to C11` or `C9-C13` counts for all codes in it."""
    yield from CODE.findall(text)
    for kind, first, last in re.findall(r"\b([CI])(\d{1,2})(?: to |-)[CI](\d{1,2})\b", text):
        yield from (f"{kind}{number}" for number in range(int(first), int(last) + 1))
