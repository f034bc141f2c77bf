"""Checks the chain of commit records, from the root back to the first commit, and compares it with the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tallystick.format import keys
from tallystick.format.columns import widens, with_parts
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.format.record import Record
from tallystick.format.root import RootTable
from tallystick.operations.verify.evidence import Evidence, Unreadable
from tallystick.operations.verify.proof import Ongoing

Meaning = tuple[str, str, int, str, str]
"""The meaning of a column id: table, table uuid, id, name, type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of one interval, as its record describes it."""

    record: keys.RecordKey
    plan: keys.PlanKey
    replaces: keys.RecordKey | None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One record, reduced to the fields that the chain check needs."""

    key: keys.RecordKey
    version: int
    root_id: str
    parent: keys.RecordKey | None
    commits: tuple[tuple[Interval, Commit], ...]
    compacts: bool
    compacted: keys.RecordKey | None
    metadata: Mapping[str, str | None]
    meanings: frozenset[Meaning]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The links from the newest to the oldest. `broken_at` is the version of the record that cannot be read, or None.

    `strays` are the readable records outside the chain: those of swaps that lost or are in progress.
    """

    links: tuple[Link, ...]
    broken_at: int | None
    strays: tuple[Link, ...]

    def reaches(self, record: str) -> bool:
        """Return True if the chain, as far as it can be read, should contain a record of that version."""
        return self.broken_at is None or keys.record_version(record) > self.broken_at


def meanings(tables: Mapping[str, RootTable]) -> frozenset[Meaning]:
    """Return the meaning of each column id of these tables, also of dropped columns and of the parts of columns."""
    return frozenset(
        (name, t.uuid, c.id, c.name, c.type)
        for name, t in tables.items()
        for c in with_parts((*t.columns, *t.dropped))
    )


def read_chain(evidence: Evidence) -> Chain:
    """Read the chain. All records are read in parallel first, because following the pointers is one request at a time."""
    check = evidence.checks["chain"]
    records = {k for k in evidence.listed if _is_record(k)}
    known: dict[str, Link | Unreadable] = {}
    shared: dict[frozenset[Meaning], frozenset[Meaning]] = {}
    ordered = sorted(records, reverse=True)
    for key, record in zip(
        ordered,
        evidence.in_parallel(evidence.record, ordered, "records", len(ordered)),
        strict=True,
    ):
        known[key] = _link(record, shared) if isinstance(record, Record) else record
    links: list[Link] = []
    key_or_none = evidence.root.record
    while key_or_none is not None:
        link = known.get(key_or_none, Unreadable(why="it does not exist"))
        if isinstance(link, Unreadable):
            named_by = links[-1].key if links else keys.ROOT
            check.found(
                "I10",
                key_or_none,
                f"the record is named by {named_by}",
                expected="a record",
                found=link.why,
            )
            return _chain(known, links, broken_at=keys.record_version(key_or_none))
        links.append(link)
        check.count("record")
        key_or_none = link.parent  # if its version were not lower, the record would not parse
    return _chain(known, links, broken_at=None)


def _chain(
    known: Mapping[str, Link | Unreadable], links: list[Link], *, broken_at: int | None
) -> Chain:
    inside = {link.key for link in links}
    strays = (s for s in known.values() if isinstance(s, Link) and s.key not in inside)
    return Chain(links=tuple(links), broken_at=broken_at, strays=tuple(strays))


def check_chain(evidence: Evidence, chain: Chain, entries: Iterable[Entry]) -> None:
    """Check the root's own record (I10), and that chain and ledger contain the same commits (I4, I5)."""
    check = evidence.checks["chain"]
    _check_newest(evidence, chain, check)
    _check_compactions(evidence, chain, check)
    history: dict[Interval, list[Commit]] = {}
    for link in chain.links:
        for interval, commit in link.commits:
            history.setdefault(interval, []).append(commit)
            check.count("commit")
    committed = {e.interval: e.committed for e in entries if e.committed is not None}
    for interval, now in committed.items():
        newest = history.get(interval, [None])[0]
        if newest is None:
            if chain.reaches(now.record):
                check.found(
                    "I4",
                    str(interval),
                    "the ledger's commit is not in the chain",
                    expected=now.record,
                    found="no record of this interval",
                )
            continue
        found = (now.record, now.plan, now.generation)
        expected = (newest.record, newest.plan, newest.generation)
        check.differs(
            "I4",
            str(interval),
            "the ledger and the newest record of the chain (record, plan, generation)",
            expected=expected,
            found=found,
        )
    for interval in history.keys() - committed.keys():
        check.found(
            "I4",
            str(interval),
            "an acknowledged commit is not in the ledger",
            expected=f"committed by {history[interval][0].record}",
            found="no committed entry",
        )
    for interval, commits in history.items():
        _check_history(check, chain, interval, commits)


def check_set_back(evidence: Evidence, chain: Chain) -> None:
    """Check that no record shows a root that the current root does not descend from (I10).

    A record is written before its swap, with the version of the root that was read, plus one. So a record of version w
    shows that a root of version w-1 existed, and that this root named the record's parent. If the root is set back to an
    older version, such records remain. Raises the errors of reading the root.
    """
    check = evidence.checks["chain"]
    root = evidence.root
    inside = {link.key for link in chain.links}
    for stray in chain.strays:
        # A record of a higher version may follow from a later root, whose records are not in this chain.
        if stray.version > root.version or stray.parent is None or stray.parent in inside:
            continue
        if chain.reaches(stray.parent):
            check.found(
                "I10",
                stray.key,
                f"a root named its parent, and {keys.ROOT} does not descend from it (was it set back?)",
                expected=f"{stray.parent} in the chain of version {root.version}",
                found="not in the chain",
            )
    above = sorted(key for key in evidence.listed if _is_record(key))
    above = [key for key in above if keys.record_version(key) > root.version]
    if not above:
        return
    # Other runs commit in the meantime: the records were listed before this second read of the root.
    now = evidence.lake.load_existing().root.version
    for key in above:
        version = keys.record_version(key)
        if version > now + 1:
            check.found(
                "I10",
                key,
                f"a root of version {version - 1} existed, and {keys.ROOT} is older (was it set back?)",
                expected=f"version {version - 1} or later",
                found=f"version {now}",
            )
    next_up = [key for key in above if keys.record_version(key) == now + 1]
    if next_up:
        check.remarks.append(
            f"{next_up[0]}: its version is one above that of {keys.ROOT} ({now}): a commit in progress, or one that was "
            f"not applied; or {keys.ROOT} was set back by one version"
        )


def _check_newest(evidence: Evidence, chain: Chain, check: Ongoing) -> None:
    root = evidence.root
    if not chain.links:
        return
    newest = chain.links[0]
    if newest.version == root.version:
        check.differs("I10", newest.key, "the root's id", expected=root.id, found=newest.root_id)
    for name, table in root.tables.items():
        # Swaps between two commits (plans, gc) do not change tables.
        check.differs(
            "I8",
            f"table {name}",
            f"the metadata in {keys.ROOT} and in {newest.key}",
            expected=newest.metadata.get(name),
            found=table.metadata,
        )


def _check_compactions(evidence: Evidence, chain: Chain, check: Ongoing) -> None:
    """Check that the root and each record of compactions name the one before: gc finds them only by this list (I10)."""
    named_by, named = keys.ROOT, evidence.root.compacted
    for link in chain.links:
        if not link.compacts:
            continue
        check.differs(
            "I10",
            named_by,
            "the last record of compactions before it",
            expected=link.key,
            found=named,
        )
        check.count("record of compactions")
        named_by, named = link.key, link.compacted
    if named is not None and chain.reaches(named):
        check.found(
            "I10",
            named_by,
            "the last record of compactions before it",
            expected="none in the chain",
            found=named,
        )


def _check_history(check: Ongoing, chain: Chain, interval: Interval, commits: list[Commit]) -> None:
    for newer, older in pairwise(commits):
        check.differs(
            "I4",
            str(interval),
            f"what {newer.record} replaces",
            expected=older.record,
            found=newer.replaces,
        )
        if newer.generation <= older.generation:
            check.found(
                "I5",
                str(interval),
                f"the generation in {newer.record}",
                expected=f"more than {older.generation}",
                found=newer.generation,
            )
    first = commits[-1]
    if first.replaces is not None and chain.reaches(first.replaces):
        check.found(
            "I4",
            str(interval),
            f"what {first.record} replaces",
            expected="nothing",
            found=first.replaces,
        )


def check_meanings(evidence: Evidence, chain: Chain) -> None:
    """Check that an id means one column in the root and in every record, and that a table keeps its uuid (I11).

    From an older record to the next one, a name may change only if the root has it as a former name, and a type may only
    widen.
    """
    check = evidence.checks["columns"]
    tables = evidence.root.tables
    former = {(name, f.id, f.name) for name, t in tables.items() for f in t.former_names}
    now = {(t, i): (u, n, k) for t, u, i, n, k in meanings(tables)}
    check.count("column", len(now))
    seen: frozenset[Meaning] | None = None
    for link in chain.links:
        if link.meanings == seen:
            continue
        seen = link.meanings
        for table, uuid, number, name, kind in sorted(link.meanings):
            later = now.get((table, number))
            is_same = later is not None and (
                later[0] == uuid
                and (later[1] == name or (table, number, name) in former)
                and (later[2] == kind or widens(kind, later[2]))
            )
            if is_same:
                now[table, number] = (uuid, name, kind)
                continue
            check.found(
                "I11",
                f"table {table}, column id {number}",
                f"its meaning (uuid, name, type) since {link.key}",
                expected=(uuid, name, kind),
                found=later or "no such column",
            )


def _is_record(key: str) -> bool:
    try:
        keys.check_record(key)
    except ValueError:
        return False
    return True


def _link(record: Record, shared: dict[frozenset[Meaning], frozenset[Meaning]]) -> Link:
    means = meanings(record.tables)
    return Link(
        key=record.key,
        version=record.version,
        root_id=record.root_id,
        parent=record.parent,
        commits=tuple(
            (
                c.interval,
                Commit(
                    record=record.key, plan=c.plan, replaces=c.replaces, generation=c.generation
                ),
            )
            for c in record.intervals
        ),
        compacts=bool(record.compactions),
        compacted=record.compacted,
        metadata={name: table.metadata for name, table in record.tables.items()},
        meanings=shared.setdefault(
            means, means
        ),  # tables rarely change: thousands of records share one set
    )
