"""The registrations of a lake: which are pending, the state after each step, and when a pointer may be set. Pure.

A registration is an output that gets no rows: a catalog outside the lake, in which each table has a pointer, the URI of
its Iceberg metadata. A commit changes the root's record, and so makes every registration pending. A publisher sets the
pointers to the tables of that record, then records it by a swap:

    declare     since = the root's record, registered = none
    (register)  outside the lake: each pointer is advanced to the tables of record R, and never set back
    finish      registered = R

So each pointer is always at a version from `registered` (before the first one: `since`) to the root's record. gc keeps
these versions readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.format.registrations import Registration
from tallystick.format.root import Root

Registrations = Mapping[str, Registration]
_METADATA = re.compile(r"(?P<table>.+/metadata/)(?P<number>[0-9]{5,20})-[^/]+\.metadata\.json")


# ---------------------------------------------------------------- the state in the root


def pending(root: Root) -> tuple[str, ...]:
    """Return the names of the registrations that lack the last commit."""
    if root.record is None:
        return ()
    return tuple(
        name
        for name, one in root.registrations.items()
        if one.declared and one.registered != root.record
    )


def with_declared(
    registrations: Registrations, targets: Mapping[str, str], record: keys.RecordKey | None
) -> dict[str, Registration]:
    """Return the registrations after a declaration with these targets by name; `record` is the root's.

    A registration that is declared again begins anew: its pointers were not kept up to date in the meantime. Raises
    InvalidPipeline if a name has another target in the root.
    """
    found = {
        name: one if name in targets else replace(one, declared=False)
        for name, one in registrations.items()
    }
    for name, target in targets.items():
        known = found.get(name)
        if known is not None and known.target != target:
            raise InvalidPipeline(
                f"registration {name}: expected target {known.target} as in the lake, found {target} in the pipeline.",
                hint="declare the old target, or a registration of another name: a registration never changes its "
                "target.",
            )
        if known is None or not known.declared:
            found[name] = Registration(target=target, since=record)
    return found


def with_registered(
    registrations: Registrations, name: str, record: keys.RecordKey
) -> dict[str, Registration] | None:
    """Return the registrations after one has the version of `record`; None if that is no progress.

    That is the case if it has this version or a later one already, or if it is not declared any more.
    """
    known = registrations.get(name)
    if known is None or not known.declared or not _is_later(record, known.registered):
        return None
    return {**registrations, name: replace(known, registered=record)}


def readable_from(root: Root) -> int | None:
    """Return the oldest version to which a pointer may be set, so that gc keeps it readable; None if there is none."""
    if root.record is None:
        return None
    oldest = [one.oldest for one in root.registrations.values() if one.declared]
    versions = [1 if record is None else keys.record_version(record) for record in oldest]
    return min(versions, default=None)


def registration_problems(before: Root | None, after: Root) -> Iterator[str]:
    """Yield each rule of registrations that a swap breaks (I14)."""
    known = before.registrations if before is not None else {}
    record = before.record if before is not None else None
    for name, was in known.items():
        now = after.registrations.get(name)
        if now is None or now.target != was.target:
            yield f"registration {name} was {was.target} and became {now.target if now else 'none'}"
        elif was.declared and now.since != was.since:
            yield f"registration {name} was declared at {was.since} and became {now.since}"
        elif was.declared and now.registered != was.registered:
            if now.registered is None or not _is_later(now.registered, was.registered):
                yield f"registration {name} goes back from {was.registered} to {now.registered}"
            elif record is None or _is_later(now.registered, record):
                yield f"registration {name} has {now.registered}, which is later than {record}"
    for name, now in after.registrations.items():
        declared_before = name in known and known[name].declared
        if now.declared and not declared_before and (now.since, now.registered) != (record, None):
            yield f"registration {name} is declared at {record}, but begins at {now.since}, {now.registered}"


def _is_later(record: keys.RecordKey, other: keys.RecordKey | None) -> bool:
    return other is None or keys.record_version(record) > keys.record_version(other)


# ---------------------------------------------------------------- a pointer in the catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """The table is not in the catalog: create its pointer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Set the pointer, if it still is `expected`."""

    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """The pointer is right already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The pointer is at a later version of the table, to which another publisher has set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """The pointer is not one of this table: it is left alone, and a person has to decide."""

    why: str


PointerStep = Create | Advance | Same | Ahead | Foreign


def pointer_step(found: str | None, wanted: str) -> PointerStep:
    """Return what to do with a pointer that is `found` in the catalog (None: no such table). Total.

    The number in the name of a metadata file grows with each change of its table, so it orders the versions.
    """
    if found is None:
        return Create()
    if found == wanted:
        return Same()
    ours, theirs = _METADATA.fullmatch(wanted), _METADATA.fullmatch(found)
    assert ours is not None, f"expected metadata of the lake, found {wanted}"
    if theirs is None or theirs["table"] != ours["table"]:
        return Foreign(why=f"expected a table at {ours['table']}, found {found}")
    if int(theirs["number"]) == int(ours["number"]):
        return Foreign(why=f"expected {wanted}, found other metadata of the same number, {found}")
    return Advance(expected=found) if int(theirs["number"]) < int(ours["number"]) else Ahead()
