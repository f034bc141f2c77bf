"""Finds the commit at a version or at an instant of the past, along the chain of commit records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime

from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.canonical import corrupt
from tallystick.format.record import Record
from tallystick.format.root import Root
from tallystick.lake import Lake, Snapshot

AsOf = int | datetime
"""A version of the root, or an instant (aware)."""

FIRST_CHECK = 64
_HINT = (
    "name a version that committed something, or a later instant: `tally log` lists the commits."
)
_Passed = tuple[int, frozenset[str]]
"""The version of a record, and the metadata files that it names and the root does not."""


def commit_at(lake: Lake, snapshot: Snapshot, as_of: AsOf) -> Record:
    """Return the record of the last commit at or before `as_of`, if its tables can still be read.

    At an instant, it is the newest commit of the chain whose `committed_at` is not later. The chain determines the order,
    not the times: if the clocks of two committers differ, a commit before it may have a later time.

    Costs one request for each commit from the newest one back to the one that is found. After FIRST_CHECK commits, and
    each time that their number has doubled, it is checked if gc has collected the version: then no older one can be read,
    so that the walk is at most twice as long as what can be read, or FIRST_CHECK.

    Raises InvalidRequest if the version does not exist yet, if nothing was committed at or before `as_of`, if the tables
    were collected by gc, and if an instant has no offset. Raises Corrupt if a record is gone or damaged.
    """
    _check(lake, snapshot, as_of)
    current = _metadata(snapshot.root)
    passed: list[_Passed] = []
    record = None
    for record in chain(lake, snapshot):
        # What the root names exists, or the lake is damaged.
        passed.append((record.version, _metadata(record) - current))
        found = _is_at(record, as_of)
        if found or (len(passed) >= FIRST_CHECK and len(passed).bit_count() == 1):
            _refuse_collected(lake, as_of, passed)
        if found:
            return record
    first = (
        ""
        if record is None
        else f"; the first commit is version {record.version}, at {_time(record)}"
    )
    raise InvalidRequest(
        f"nothing was committed to {lake.store.uri} by {_named(as_of)}{first}.", hint=_HINT
    )


def chain(lake: Lake, snapshot: Snapshot) -> Iterator[Record]:
    """Yield the records of the chain that begins at the root, newest first; each costs one request.

    Raises Corrupt if a record is gone or damaged.
    """
    key = snapshot.root.record
    while key is not None:
        record = existing_record(lake, key)
        yield record
        key = record.parent


def existing_record(lake: Lake, key: keys.RecordKey) -> Record:
    """Read a record that the chain of commits names; raises Corrupt if it is gone: gc deletes none."""
    record = lake.record(key)
    if record is None:
        raise corrupt(
            lake.where(key), "the chain of commits names this record, and it does not exist"
        )
    return record


def _check(lake: Lake, snapshot: Snapshot, as_of: AsOf) -> None:
    if isinstance(as_of, datetime):
        if as_of.utcoffset() is None:
            raise InvalidRequest(
                f"as_of: expected an instant with an offset, found {as_of.isoformat()} without one.",
                hint="use an aware datetime, e.g. datetime(2026, 11, 26, 10, tzinfo=UTC).",
            )
    elif not 1 <= as_of <= snapshot.root.version:
        raise InvalidRequest(
            f"{lake.store.uri} has no version {as_of}; it is at version {snapshot.root.version}.",
            hint=_HINT,
        )


def _is_at(record: Record, as_of: AsOf) -> bool:
    return record.committed_at <= as_of if isinstance(as_of, datetime) else record.version <= as_of


def _refuse_collected(lake: Lake, as_of: AsOf, passed: list[_Passed]) -> None:
    """Raise InvalidRequest if gc has deleted tables of the last of these versions; it deletes their metadata first.

    gc keeps the newest versions, so those that can be read come first; the oldest of them is found with few requests.
    """
    gone = _gone(lake, passed[-1])
    if gone is None:
        return
    version = passed[-1][0]
    readable = bisect_left(passed, True, key=lambda one: _gone(lake, one) is not None)
    oldest = passed[readable - 1][0] if readable else lake.load_existing().root.version
    requested = "" if as_of == version else f" ({_named(as_of)} was requested)"
    raise InvalidRequest(
        f"version {version} of {lake.store.uri}{requested} can no longer be read: gc has collected {gone}. The oldest "
        f"version that can be read is {oldest}.",
        hint="name that version or a later one, or none: old versions remain readable for the reader grace of gc.",
    )


def _gone(lake: Lake, one: _Passed) -> str | None:
    """Return a metadata file of this version that does not exist; None if all exist."""
    return next((key for key in sorted(one[1]) if lake.store.get(key) is None), None)


def _metadata(state: Root | Record) -> frozenset[str]:
    return frozenset(t.metadata for t in state.tables.values() if t.metadata is not None)


def _named(as_of: AsOf) -> str:
    return as_of.isoformat() if isinstance(as_of, datetime) else f"version {as_of}"


def _time(record: Record) -> str:
    return keys.instant(record.committed_at.astimezone(UTC))
