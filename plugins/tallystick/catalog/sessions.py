"""Sessions: what a warehouse and a prefix select of the lakes that the caller may see.

A lake that the caller may not see is answered like one that does not exist, before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.catalog.errors import no_such_namespace, no_such_warehouse
from tallystick.catalog.lakes import ServedLake
from tallystick.catalog.tokens import TokenGrant
from tallystick.catalog.versions import (
    At,
    ExactCommit,
    LakeAt,
    Selection,
    parse_prefix,
    parse_warehouse,
    selection_text,
)
from tallystick.errors import NothingPlanned
from tallystick.operations.status.timeline import read_all

SEPARATOR = "\x1f"
"""Between the parts of a namespace; no lake has a name with several parts."""

Lakes = Mapping[str, ServedLake]


def visible(lakes: Lakes, grant: TokenGrant) -> Lakes:
    """Return the lakes that the caller may see, in the order of their names."""
    return {name: lake for name, lake in sorted(lakes.items()) if grant.may_see(name)}


def begin(lakes: Lakes, warehouse: str) -> str:
    """Return the prefix of a new session, with which each lake is at one version, unless the warehouse follows it.

    Raises SelectionError if the text is not a warehouse. Raises CatalogError if a lake or a version does not exist, or if
    gc has collected the version; and the errors of `ServedLake.at`.
    """
    wanted = parse_warehouse(warehouse)
    if not lakes:
        raise no_such_warehouse(warehouse or "this token may see none of this catalog")
    if wanted.every == "latest":
        return selection_text(wanted)
    named = wanted.lakes or tuple(LakeAt(lake=name, at="newest") for name in lakes)
    for one in named:
        if one.lake not in lakes:
            raise no_such_warehouse(one.lake)
    versions = read_all(named, lambda one: _pinned(lakes[one.lake], one.at))
    pinned: list[LakeAt] = []
    for one in named:
        version = versions[one]
        if version is None and wanted.every is None:
            raise no_such_warehouse(f"{one.lake} (nothing has been planned in it yet)")
        pinned.append(LakeAt(lake=one.lake, at=version if version is not None else 0))
    return selection_text(Selection(lakes=tuple(pinned)))


def _pinned(lake: ServedLake, at: At) -> At | None:
    """Return the version for a session's prefix; None if nothing is planned in the lake yet."""
    if at == "latest":
        return at
    try:
        found = lake.at(at)
    except NothingPlanned:
        return None
    if at != "newest":
        lake.check_not_collected(found)
    return 0 if found.record is None else ExactCommit.of(found.record)


def selected(lakes: Lakes, prefix: str) -> Mapping[str, At]:
    """Return the lakes of a session, each with what the prefix selects of it. Raises SelectionError, CatalogError."""
    wanted = parse_prefix(prefix)
    if wanted.every is not None:
        return dict.fromkeys(lakes, wanted.every)
    for one in wanted.lakes:
        if one.lake not in lakes:
            raise no_such_namespace(one.lake)
    return {one.lake: one.at for one in wanted.lakes}


def lake_at(lakes: Lakes, prefix: str, namespace: str) -> tuple[ServedLake, At]:
    """Return a namespace's lake and what the prefix selects of it. Raises SelectionError, CatalogError."""
    found = selected(lakes, prefix)
    if namespace not in found:
        raise no_such_namespace(namespace.replace(SEPARATOR, "."))
    return lakes[namespace], found[namespace]


def existing(lakes: Lakes, prefix: str) -> tuple[str, ...]:
    """Return the namespaces of a session, sorted, without the lakes in which nothing is planned yet."""

    def is_there(name: str) -> bool:
        try:
            lakes[name].at(found[name])
        except NothingPlanned:
            return False
        return True

    found = selected(lakes, prefix)
    there = read_all(found, is_there)
    return tuple(sorted(name for name in found if there[name]))
