"""The texts that select versions of lakes: the warehouse with which a session begins, and the prefix of its requests.

    warehouse                        what the session reads
    (empty)                          every lake, at the version that is the newest when the session begins
    flights                          the lake flights, likewise
    flights@412                      the lake at the last commit at or before version 412
    flights@2026-11-26T10:00:00Z     the lake at the last commit at or before the instant
    flights@latest                   the lake at the version that is the newest at each request
    latest                           every lake, likewise
    flights@412,orders               several lakes

A prefix has the same form, with a version or `latest` for each lake: `flights@412.3f2a9c1d,orders@77.b81e05ac`, or
`latest` alone. The digits after the version are the mark of the commit: without it, a session could not detect that its
lake was set back or replaced, and has another version 412 now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tallystick.format import keys

LATEST = "latest"
LAKES_MAX = 200
VERSION_MAX = 10**12 - 1
MARK_DIGITS = 8

Moving = Literal["newest", "latest"]
"""`newest`: the newest version when the session begins. `latest`: the newest version at each request."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_VERSION = re.compile(r"0|[1-9][0-9]{0,11}")
_MARK = re.compile(r"[0-9a-f]{8}")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,3})?Z")
_SHOWN_CHARS = 80


class SelectionError(ValueError):
    """A warehouse or a prefix does not have the form of one. The text describes what was expected and found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactCommit:
    """A commit: its version, and its mark, the first digits of its record's uuid."""

    version: int
    mark: str

    def __post_init__(self) -> None:
        if not 1 <= self.version <= VERSION_MAX or not _MARK.fullmatch(self.mark):
            raise SelectionError(f"expected a version and a mark, found {self.version}.{self.mark}")

    @classmethod
    def of(cls, record: keys.RecordKey) -> ExactCommit:
        """Return the commit of a record's key."""
        uuid = record.rpartition("-")[2]
        return cls(version=keys.record_version(record), mark=uuid[:MARK_DIGITS])


At = int | ExactCommit | datetime | Moving
"""What of a lake is read. A version and an instant mean the last commit at or before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeAt:
    """A lake by its name, and the version of it."""

    lake: str
    at: At

    def __post_init__(self) -> None:
        check_lake_name(self.lake)
        if isinstance(self.at, datetime):
            keys.check_instant(self.at)
        elif isinstance(self.at, int) and not 0 <= self.at <= VERSION_MAX:
            raise SelectionError(f"expected a version from 0 to {VERSION_MAX}, found {self.at}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The lakes of a session, each once. `every`: if it is not None, every lake that the caller may see."""

    lakes: tuple[LakeAt, ...] = ()
    every: Moving | None = None

    def __post_init__(self) -> None:
        if (self.every is None) is not bool(self.lakes):
            raise SelectionError("expected either every lake or names of lakes")
        if len(self.lakes) > LAKES_MAX:
            raise SelectionError(f"expected at most {LAKES_MAX} lakes, found {len(self.lakes)}")
        names = [one.lake for one in self.lakes]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise SelectionError(f"expected each lake once, found {repeated[0]} again")

    @property
    def is_prefix(self) -> bool:
        """True if each lake has a version or `latest`, so that the selection means the same for a whole session."""
        if self.every is not None:
            return self.every == "latest"
        return all(
            isinstance(one.at, int | ExactCommit) or one.at == "latest" for one in self.lakes
        )


def check_lake_name(name: str) -> str:
    """Return a name that a lake may have as a namespace; raises SelectionError."""
    if not _NAME.fullmatch(name) or name == LATEST:
        raise SelectionError(
            f"expected the name of a lake (1 to 63 of a-z, 0-9, _ and -, and not {LATEST}), found {_shown(name)}"
        )
    return name


def parse_warehouse(text: str) -> Selection:
    """Return what a warehouse selects; raises SelectionError for any text that is not one."""
    if not text:
        return Selection(every="newest")
    if text == LATEST:
        return Selection(every="latest")
    words = text.split(",", LAKES_MAX + 1)
    return Selection(lakes=tuple(_lake_at(word) for word in words))


def parse_prefix(text: str) -> Selection:
    """Return what a prefix selects; raises SelectionError for any text that is not one."""
    found = parse_warehouse(text)
    if not found.is_prefix:
        raise SelectionError(
            f"expected a version or {LATEST} for each lake, such as flights@412, found {_shown(text)}"
        )
    return found


def selection_text(selection: Selection) -> str:
    """Return the text that `parse_warehouse` reads as this selection."""
    if selection.every is not None:
        return LATEST if selection.every == "latest" else ""
    return ",".join(_text(one) for one in selection.lakes)


def _text(one: LakeAt) -> str:
    if one.at == "newest":
        return one.lake
    match one.at:
        case datetime():
            at = keys.instant(one.at)
        case ExactCommit(version=version, mark=mark):
            at = f"{version}.{mark}"
        case _:
            at = str(one.at)
    return f"{one.lake}@{at}"


def _lake_at(word: str) -> LakeAt:
    name, has_at, at = word.partition("@")
    check_lake_name(name)
    if not has_at:
        return LakeAt(lake=name, at="newest")
    if at == LATEST:
        return LakeAt(lake=name, at="latest")
    if _VERSION.fullmatch(at):
        return LakeAt(lake=name, at=int(at))
    version, _, mark = at.partition(".")
    if _VERSION.fullmatch(version) and version != "0" and _MARK.fullmatch(mark):
        return LakeAt(lake=name, at=ExactCommit(version=int(version), mark=mark))
    if _INSTANT.fullmatch(at):
        try:
            return LakeAt(lake=name, at=datetime.fromisoformat(at).astimezone(UTC))
        except ValueError:
            pass  # a day or an hour that does not exist
    raise SelectionError(
        f"lake {name}: expected a version, {LATEST}, or an instant such as 2026-11-26T10:00:00Z after the @, "
        f"found {_shown(at)}"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...")
