"""Finds where the rows of each reported file are: in the file itself, or in a shared file of a compaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tallystick.format import keys
from tallystick.format.compaction import Compaction, PlacedRun, SharedFile
from tallystick.format.page import Entry
from tallystick.operations.verify.evidence import Evidence
from tallystick.protocol.compacting import SharedContent, content, is_living


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedFile:
    """The rows of a reported file in a shared file."""

    shared: SharedFile
    placed: PlacedRun


@dataclass(slots=True, kw_only=True)
class Places:
    """The moved files by the key that a report lists, and the expected state of each shared file by table and key.

    `whole` is False if a compaction could not be read: then it is not known which files the tables should have.
    """

    moved: dict[str, MovedFile] = field(default_factory=dict)
    shared: dict[str, dict[str, SharedContent]] = field(default_factory=dict)
    whole: bool = True


def read_places(evidence: Evidence, entries: Iterable[Entry]) -> Places:
    """Read the compactions that the entries name, and check that each has the rows for which it is named (I13)."""
    by_interval = {e.interval: e for e in entries}
    places = Places()
    named = {
        keys.compaction(table, number)
        for e in by_interval.values()
        if e.committed is not None
        for table, number in e.committed.compactions.items()
    }
    ordered = sorted(named)
    read = evidence.in_parallel(evidence.compaction, ordered, "compactions", len(ordered))
    found: dict[keys.CompactionKey, Compaction] = {}
    for key, value in zip(ordered, read, strict=True):
        compaction = evidence.take(value, key, "compaction")
        if compaction is None:
            places.whole = False
            continue
        found[key] = compaction
        _check_table(evidence, compaction)
        shared = places.shared.setdefault(compaction.table, {})
        for one in content(compaction, by_interval):
            shared[one.shared.file.key] = one
            for placed in one.shared.placed():
                if is_living(compaction, by_interval.get(placed.run.interval), placed.run):
                    places.moved[placed.run.key] = MovedFile(shared=one.shared, placed=placed)
    _check_named(evidence, by_interval.values(), found)
    return places


def _check_table(evidence: Evidence, compaction: Compaction) -> None:
    table = evidence.root.tables.get(compaction.table)
    evidence.checks["columns"].differs(
        "I11",
        compaction.key,
        f"the uuid of table {compaction.table}",
        expected=table.uuid if table is not None else "no such table",
        found=compaction.uuid,
    )


def _check_named(
    evidence: Evidence,
    entries: Iterable[Entry],
    found: Mapping[keys.CompactionKey, Compaction],
) -> None:
    plans = {key: {run.plan for run in compaction.runs} for key, compaction in found.items()}
    for entry in entries:
        if entry.committed is None:
            continue
        for table, number in entry.committed.compactions.items():
            key = keys.compaction(table, number)
            if key in plans and entry.committed.plan not in plans[key]:
                evidence.checks["tables"].found(
                    "I13",
                    key,
                    f"rows of {entry.interval}, whose entry names the compaction",
                    expected=f"runs of {entry.committed.plan}",
                    found="none",
                )


def shared_files(places: Places) -> Iterator[tuple[str, str, SharedContent]]:
    """Yield (table, key, expected state) of each shared file that a table should list."""
    for table, files in sorted(places.shared.items()):
        for key, one in sorted(files.items()):
            if one.is_listed:
                yield table, key, one
