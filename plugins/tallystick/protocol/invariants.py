"""The invariants as predicates over (before, after), checked before each swap and in every test after each step.

I1 each offset of a committed range belongs to exactly one committed interval. I2 neighbours share a boundary; ranges
are monotone. I3 every object that the root reaches exists and is unchanged. I4 an acknowledged commit stays in the chain.
I5 only a granted plan is committed; generations grow. I6 writers delete nothing. I7 the account of each committed range
adds up and equals the tables. I8 a reader of one root sees all tables in the same snapshot. I9 gc deletes nothing that a
retained version reaches or a granted plan owns. I10 versions grow by one; records form one chain. I11 a column id always
means one column: its name changes only by a recorded rename, its type only widens, and a dropped id never comes back. I12
an output's name always means one target, and a plan is published only after a commit set it as wanted and a swap set it
in progress, or at once if it has no row for the output and none was sent before. I13 a compaction changes where rows are,
and nothing else: not the plan of an interval, its account, its grant or its outputs. I14 a registration's name
always means one target, and the version that it has never goes back and is never later than the root's last record.

I3, I6, I8 and I9 are about objects, not values: the store tests, `tally verify` and the explorer check them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tallystick.format import keys
from tallystick.format.columns import successor, with_parts
from tallystick.format.page import Boundary, Committed, Entry, Page
from tallystick.format.plan import Plan
from tallystick.format.report import RangeAccount
from tallystick.format.root import Root, RootTable
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.publishing import slot_problem
from tallystick.protocol.registering import registration_problems


class InvariantError(AssertionError):
    """The error for a swap that would break the protocol, raised before its PUT: a defect of tallystick itself."""


def check_swap(
    before: Root | None, ledger_before: Ledger, after: Root, ledger_after: Ledger
) -> None:
    """Raise InvariantError with the first invariant that the swap from `before` to `after` would break."""
    for problem in (
        *_chain(before, after),
        *_identity(before, after),
        *_entries(ledger_before, ledger_after),
        *_boundaries(ledger_before, ledger_after, after),
        *_record(before, ledger_before, after, ledger_after),
        *_outputs(before, ledger_before, after, ledger_after),
        *_compactions(before, ledger_before, after, ledger_after),
        *(f"I14: {problem}" for problem in registration_problems(before, after)),
    ):
        raise InvariantError(problem)


def check_pages(
    before: Root, after: Root, edited: Ledger, written: Mapping[keys.PageKey, Page]
) -> None:
    """Raise InvariantError if the pages that `after` names differ from `edited`, or if another page is missing (I4).

    Also raise it if the pending pages of `after` are wrong (I12). `edited` is a window on the pages of `before`;
    `written` are the pages that its flush made, by key.
    """
    kept = {ref.key for ref in after.pages}
    for ref in before.pages:
        if ref.key not in kept and ref.key not in edited.loaded:
            raise InvariantError(f"I4: page {ref.key} vanished and was not loaded")
    read_back = Ledger(after.pages, {**edited.loaded, **written})
    if (read_back.entries, read_back.boundaries) != (edited.entries, edited.boundaries):
        raise InvariantError("I4: the pages to write differ from the decided ledger")
    for ref in after.pages:
        is_pending = written[ref.key].pending if ref.key in written else ref.key in before.pending
        if is_pending is not (ref.key in after.pending):
            raise InvariantError(f"I12: the root is wrong about whether page {ref.key} is pending")


def _chain(before: Root | None, after: Root) -> Iterator[str]:
    if before is None:
        if after.version != 1:
            yield f"I10: the first root has version {after.version}"
        return
    if after.version != before.version + 1:
        yield f"I10: version {after.version} follows {before.version}"
    if after.id == before.id:
        yield f"I10: two roots share the id {after.id}"
    is_renamed = after.pipeline != before.pipeline
    names = (*before.former_names, *([before.pipeline] if is_renamed else ()))
    if after.former_names != names:
        yield f"I10: pipeline {after.pipeline} ({after.former_names}) follows {before.pipeline} ({names})"
    if after.uri != before.uri:
        yield f"I10: the lake {after.uri} follows {before.uri}"


def _identity(before: Root | None, after: Root) -> Iterator[str]:
    if before is None:
        return
    for name, topic in before.topics.items():
        now = after.topics.get(name)
        if now is None or (now.topic_id, now.cluster_id) != (topic.topic_id, topic.cluster_id):
            yield f"I2: topic {name} changed its identity"
        elif now.origins[: len(topic.origins)] != topic.origins:
            yield f"I2: an origin of topic {name} moved"
        elif topic.closed is not None and now != topic:
            yield f"I2: topic {name} is closed, and its end moved"
    for name, table in before.tables.items():
        there = after.tables.get(name)
        if there is None or there.uuid != table.uuid:
            yield f"I4: table {name} vanished or was replaced by another"
            continue
        if table.metadata is not None and there.metadata is None:
            yield f"I4: table {name} lost its metadata"
        yield from _columns(name, table, there)


def _columns(name: str, was: RootTable, now: RootTable) -> Iterator[str]:
    """Yield each column whose id means another column after the swap, or none (I11)."""
    if now.former_names[: len(was.former_names)] != was.former_names:
        yield f"I11: a former name of a column of {name} vanished"
    if now.dropped[: len(was.dropped)] != was.dropped:
        yield f"I11: a dropped column of {name} came back or vanished"
    for column in was.columns:
        if successor(column, now.columns, now.dropped, now.former_names) is None:
            yield f"I11: column id {column.id} of {name} was {column.name} {column.text}"
    known = {c.id: c for c in with_parts(was.columns)}
    last = max([0, *known, *(c.id for c in with_parts(was.dropped))])
    for column in with_parts(now.columns):
        before = known.get(column.id)
        if before is not None and column.required and not before.required:
            yield f"I11: column id {column.id} of {name} was optional and became required"
        if column.id not in known and column.id <= last:
            yield f"I11: the new column {column.name} of {name} has the id {column.id}, which is not new"


def _entries(before: Ledger, after: Ledger) -> Iterator[str]:
    last: Entry | None = None
    for entry in after.entries:
        if last is not None and entry.interval.start < last.interval.end:
            yield f"I1: entries {last.interval} and {entry.interval} overlap"
        last = entry
        was = before.entry(entry.interval)
        yield from _commit_of(was, entry)
    for was in before.entries:
        now = after.entry(was.interval)
        if was.committed is not None and (now is None or now.committed is None):
            yield f"I4: committed entry {was.interval} vanished"


def _commit_of(was: Entry | None, now: Entry) -> Iterator[str]:
    if was is not None and now.generation < was.generation:
        yield f"I5: generation of {now.interval} fell from {was.generation} to {now.generation}"
    old = was.committed if was else None
    new = now.committed
    if new is None or not _is_new(old, new):
        return
    granted = was.granted if was else None
    # One swap grants and commits an interval without offsets: its higher generation shows that the grant is new.
    at_once = new.totals.offsets == 0 and new.generation > (was.generation if was else 0)
    if not at_once and (granted is None or granted.plan != new.plan):
        yield f"I5: {now.interval} would be committed by {new.plan}, which has no grant"
    if old is not None and new.generation <= old.generation:
        yield f"I5: generation {new.generation} would replace {old.generation} in {now.interval}"


def _is_new(old: Committed | None, new: Committed) -> bool:
    """Return True if another plan is committed. The place of its rows may change without a commit (I13)."""
    return old is None or old.plan != new.plan


def _boundaries(before: Ledger, after: Ledger, root: Root) -> Iterator[str]:
    row = after.boundaries
    now = {b.at: b for b in row}
    for was in before.boundaries:
        if now.get(was.at) != was:
            yield f"I2: the boundary at {was.at} moved"
    begins = root.origins  # made anew at each access: not in the loops
    for left, right in itertools.pairwise(row):
        for topic, origins in begins.items():
            for partition in range(len(origins)):
                a = left.position(topic, partition, begins)
                b = right.position(topic, partition, begins)
                if a.offset > b.offset:
                    yield f"I2: {topic}[{partition}] goes back from {a.offset} to {b.offset} at {right.at}"
    for problem in closed_problems(root, after.boundaries):
        yield f"I2: {problem}"
    for entry in after.entries:
        if entry.interval.start not in now:
            yield f"I2: {entry.interval} begins at no boundary"


def closed_problems(root: Root, boundaries: Iterable[Boundary]) -> Iterator[str]:
    """Yield each contradiction between boundaries and adoptions.

    Boundaries after `since` have a closed topic at its end; boundaries up to `since` have the next one at its origins.
    """
    row = tuple(boundaries)
    begins = root.origins  # made anew at each access: not in the loops
    for name, topic in root.topics.items():
        if topic.closed is None:
            continue
        following = keys.next_incarnation(name)
        for boundary in row:
            later = boundary.at > topic.closed.since
            for partition, end in enumerate(topic.closed.ends):
                offset = boundary.position(name, partition, begins).offset
                if offset > end or (later and offset != end):
                    yield f"{name}[{partition}] ended at {end}, the boundary at {boundary.at} has {offset}"
            for partition, origin in enumerate(root.topics[following].origins):
                offset = boundary.position(following, partition, begins).offset
                if not later and offset != origin:
                    since = topic.closed.since
                    yield f"{following}[{partition}] has offsets before {since}, the instant of its adoption"


def _record(
    before: Root | None, ledger_before: Ledger, after: Root, ledger_after: Ledger
) -> Iterator[str]:
    """Check that a commit has the record of its own version, and that any other swap keeps the previous record."""
    old = {e.interval: e.committed for e in ledger_before.entries}
    new = [
        e for e in ledger_after.entries if e.committed and _is_new(old.get(e.interval), e.committed)
    ]
    if not new and after.compacted != (before.compacted if before else None):
        return  # _compactions checks the record
    if not new:
        if after.record != (before.record if before else None):
            yield f"I10: nothing is committed, but the record became {after.record}"
        return
    if after.record is None or keys.record_version(after.record) != after.version:
        yield f"I10: version {after.version} commits with the record {after.record}"
    for entry in new:
        if entry.committed and entry.committed.record != after.record:
            yield f"I10: {entry.interval} names the record {entry.committed.record}, the root names {after.record}"


def _outputs(
    before: Root | None, ledger_before: Ledger, after: Root, ledger_after: Ledger
) -> Iterator[str]:
    for name, target in (before.outputs if before else {}).items():
        if after.outputs.get(name) != target:
            yield f"I12: output {name} was {target} and became {after.outputs.get(name)}"
    for entry in ledger_after.entries:
        was = ledger_before.entry(entry.interval)
        old, new = (None if e is None else e.committed for e in (was, entry))
        is_new = new is not None and _is_new(old, new)
        committed = keys.plan_parts(new.plan)[1] if new is not None and is_new else None
        slots = was.outputs if was else {}
        for name in sorted({*slots, *entry.outputs}):
            if name not in after.outputs:
                yield f"I12: {entry.interval} has rows for output {name}, which the root does not have"
            problem = slot_problem(slots.get(name), entry.outputs.get(name), committed)
            if problem is not None:
                yield f"I12: output {name} of {entry.interval} {problem}"


def _compactions(
    before: Root | None, ledger_before: Ledger, after: Root, ledger_after: Ledger
) -> Iterator[str]:
    """Check that a swap moves rows only by granted compactions, and changes nothing else then (I13)."""
    published: set[keys.CompactionKey] = set()
    for entry in ledger_after.entries:
        was = ledger_before.entry(entry.interval)
        old, new = (None if e is None else e.committed for e in (was, entry))
        if new is None:
            continue
        if was is None or old is None or _is_new(old, new):
            if new.compactions:
                yield f"I13: {entry.interval} is committed, and its rows would be in a shared file at once"
            continue
        if replace(new, compactions=old.compactions) != old:
            yield f"I13: the commit of {entry.interval} changed"
        if old.compactions.keys() - new.compactions.keys():
            yield f"I13: {entry.interval} lost the name of the compaction that has its rows"
        moved = {t: c for t, c in new.compactions.items() if old.compactions.get(t) != c}
        if moved and replace(entry, committed=old) != was:
            yield f"I13: {entry.interval} changed when its rows were moved"
        published |= {keys.compaction(table, number) for table, number in moved.items()}
    if published:
        yield from _publication(published, before, after)
    elif after.compacted != (before.compacted if before else None):
        yield f"I13: no rows were moved, but the record of compactions became {after.compacted}"


def _publication(
    published: set[keys.CompactionKey], before: Root | None, after: Root
) -> Iterator[str]:
    granted = {grant.key for grant in before.compacting} if before else set()
    for key in sorted(published - granted):
        yield f"I13: {key} would be published without a grant"
    for key in sorted(published & {grant.key for grant in after.compacting}):
        yield f"I13: {key} is published and would keep its grant"
    if after.compacted is None or keys.record_version(after.compacted) != after.version:
        yield f"I10: version {after.version} moves rows with the record {after.compacted}"
    if after.record != after.compacted:
        yield f"I13: version {after.version} would commit {after.record} and move rows by {after.compacted}"
    if before is None:
        return
    if _without_metadata(after) != _without_metadata(before):
        yield f"I13: version {after.version} moves rows and changes a table's columns or partition rules"
    if (after.topics, after.outputs) != (before.topics, before.outputs):
        yield f"I13: version {after.version} moves rows and changes topics or outputs"


def _without_metadata(root: Root) -> dict[str, RootTable]:
    return {name: replace(table, metadata=None) for name, table in root.tables.items()}


def account_problem(plan: Plan, accounts: tuple[RangeAccount, ...]) -> str | None:
    """Return how the accounts fail to cover the plan's ranges exactly (I7); None if they cover them."""
    wanted = {(t.name, p): r for t in plan.topics for p, r in enumerate(t.ranges)}
    seen: set[tuple[str, int]] = set()
    for account in accounts:
        place = (account.topic, account.partition)
        planned = wanted.get(place)
        name = f"{account.topic}[{account.partition}]"
        if planned is None:
            return f"{name} has an account but is not planned"
        if place in seen:
            return f"{name} has two accounts"
        seen.add(place)
        if (account.start, account.end) != (planned.start, planned.end):
            return f"{name}: the account covers [{account.start}, {account.end}), the plan {planned.span}"
        if account.lost != planned.lost:
            return f"{name}: {account.lost} offsets are accounted as lost, the plan accepted {planned.lost}"
        compacted = next(t.compacted for t in plan.topics if t.name == account.topic)
        if account.absent and not compacted:
            return f"{name}: {account.absent} offsets are absent from a topic that is not compacted"
    missing = sorted(place for place, r in wanted.items() if place not in seen and not r.span.empty)
    if missing:
        return f"{missing[0][0]}[{missing[0][1]}] is planned but has no account"
    return None
