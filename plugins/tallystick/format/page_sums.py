"""The sums of a ledger page, found in its bytes without an object for each interval, if no interval must be reported.

An interval must be reported if it is not committed, if something of it is granted, pending or lost, or if a status lists
it for another reason. Nearly all pages of an old lake have no such interval, and a status shows only their sums.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from tallystick.format import keys
from tallystick.format.page import TOTALS, Boundary, Entry, Page, Totals
from tallystick.format.page_outline import ENTRIES, START

# Canonical JSON (`canonical`) sorts the fields and has no spaces. Texts with a backslash or a brace do not match, so such
# a page is read as a whole.
_BOUNDARY = b'{"at":"'
_END = b',"format":"%s"}' % Page.FORMAT.encode()
_TEXT = rb'"([^"\\{}]*)"'
_UUID = rb"[0-9a-f]{32}"
_ENTRY = re.compile(
    rb'\{"committed":\{"compactions":\{[^{}]*\},"fingerprint":"[^"\\{}]*","generation":([0-9]{1,18}),"lookback":null,'
    rb'"plan":"[^"\\{}]*","record":"[^"\\{}]*","request":\['
    + _TEXT
    + rb',"[^"\\{}]*",[0-9]{1,18}\],'
    rb'"totals":\[([0-9]{1,18}),([0-9]{1,18}),([0-9]{1,18}),([0-9]{1,18}),([0-9]{1,18}),0\]\},'
    # As many grants as commits: none has ended without a commit.
    rb'"generation":\1,"granted":null,"interval":\["([^"]{24})","([^"]{24})"\],'
    # Each output has the rows of the plan that it must have.
    rb'"outputs":\{(?:"[^"\\{}]*":\{"in_progress":null,"published":"(?P<plan>' + _UUID + rb")"
    rb'","wanted":"(?P=plan)"\},?)*\},"served":\[[^{}]*\]\}([,\]])'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSums:
    """The sums of a page whose intervals fill `since <= t < until` without a gap, and of which none must be reported.

    `intervals`: their number. `generations`: their number by the generation of the commit. `dags`: those of the commits.
    `first`: the boundary at `since`.
    """

    first: Boundary
    until: datetime
    intervals: int
    totals: Totals
    generations: Mapping[int, int]
    dags: frozenset[str]

    @property
    def since(self) -> datetime:
        """The start of its first interval."""
        return self.first.at

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Empty: its entries are not read."""
        return ()

    @property
    def edges(self) -> Mapping[datetime, Boundary]:
        """Its first boundary, the only one that was read."""
        return {self.since: self.first}

    @classmethod
    def found(cls, body: bytes, *, where: str) -> Self | None:
        """Return the sums of a page's bytes; None if an interval must be reported, or if the bytes are not such a page.

        Other boundaries than the first are not checked: what needs them decodes the page. Raises Corrupt if the first
        boundary is invalid.
        """
        at = body.find(ENTRIES)
        if at < 0 or not (body.startswith(START) and body.endswith(_END) and body.isascii()):
            return None
        sums = _EntrySums()
        if not sums.add(body, at + len(ENTRIES), len(body) - len(_END)):
            return None
        second = body.find(b"," + _BOUNDARY, 0, at)
        last = body.rfind(_BOUNDARY, 0, at) + len(_BOUNDARY)
        try:
            until = keys.parse_instant(sums.until.decode())
            latest = keys.parse_instant(body[last : last + len(sums.until)].decode())
            form = json.loads(body[len(START) - len(_BOUNDARY) : second if second > 0 else at + 1])
        except ValueError:
            return None
        first = Boundary.from_json(form, where)
        # Time from a boundary to the next interval, or from the last one to a boundary, would be a gap.
        if keys.instant(first.at).encode() != sums.since or latest > until:
            return None
        return cls(
            first=first,
            until=until,
            intervals=sum(sums.generations.values()),
            totals=Totals(**dict(zip(TOTALS, sums.totals, strict=False))),
            generations={int(one): count for one, count in sums.generations.items()},
            dags=frozenset(dag.decode() for dag in sums.dags),
        )


class _EntrySums:
    """What is counted over the entries of a page, as its bytes have it."""

    def __init__(self) -> None:
        self.since = self.until = b""
        self.totals = [0] * (len(TOTALS) - 1)  # none is lost
        self.generations: Counter[bytes] = Counter()
        self.dags: set[bytes] = set()

    def add(self, body: bytes, at: int, end: int) -> bool:
        """Count the entries of `body[at:end]`, with the bracket that ends them. Returns False if one must be reported."""
        follows = b""
        while at < end:
            found = _ENTRY.match(body, at)
            if found is None:
                return False
            generation, dag, *counts, start, stop, _, follows = found.groups()
            records, dead, aborted, control, absent = map(int, counts)
            only_dead, replaced = dead and not records, generation != b"1"
            # A commit with dead letters only is reported, and a replacement that may have fewer records.
            if start >= stop or only_dead or (absent and replaced):
                return False
            if self.until not in (b"", start):
                return False
            self.since = self.since or start
            self.until = stop
            totals = self.totals
            totals[0] += records
            totals[1] += dead
            totals[2] += aborted
            totals[3] += control
            totals[4] += absent
            self.generations[generation] += 1
            self.dags.add(dag)
            at = found.end()
        return follows == b"]" and at == end
