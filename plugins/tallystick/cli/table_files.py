"""`tally tables --files`: the files of each table by size, and all objects of a lake with the rule that keeps each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tallystick.cli import json_output
from tallystick.cli.by_name import CatalogNames
from tallystick.cli.errors import bars
from tallystick.cli.text import INDENT, grid, length, many, paragraph, size, spell
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.gc import Heap
from tallystick.operations.status.files import (
    MB,
    SIZES,
    FilesOfTable,
    LakeFiles,
    StoredObjects,
    What,
    read_files,
)
from tallystick.operations.status.kept import Rule

COLUMNS = ("table", "what", "kept_by", "objects", "bytes")
_BAR = 20
_NAMES: Mapping[What, str] = {
    "data file": "data files",
    "delete file": "delete files",
    "manifest": "manifests",
    "manifest list": "manifest lists",
    "metadata file": "metadata files",
    "root": "root.json",
    "page": "ledger pages",
    "record": "commit records",
    "plan": "plans",
    "report": "reports",
    "claim": "claims",
    "compaction": "compactions",
    "call": "notes of calls",
    "scratch": "scratch",
    "probe": "probe objects",
    "foreign": "other objects",
}
_WHY: Mapping[Rule, str] = {
    "current": "root.json or the current snapshot of a table needs it",
    "history": "only older snapshots of a table list it (Iceberg's time travel)",
    "grace": "a version within the reader grace ({grace}), or of a registration, needs it",
    "granted": "it is of a plan or a compaction that may still be committed",
    "outputs": "an output still needs it",
    "doubt": "it is of a commit that is not in the ledger, or of a probe: kept for some time",
    "always": "it is never deleted",
    "foreign": "tallystick did not write it, and does not delete it",
    "nothing": "nothing needs it: `tally gc` would delete it, unless a run is about to commit it",
}


def found(lake: Lake, reader_grace: str | None) -> LakeFiles:
    """Read all objects of a lake, with bars on a terminal. `reader_grace`: a duration; None is the default of gc."""
    from tallystick.cli.gc import duration

    grace = None if reader_grace is None else duration(reader_grace, "--reader-grace")
    with bars() as watch:
        return read_files(lake, reader_grace=grace, watch=watch)


# ---------------------------------------------------------------- text


def as_text(answer: LakeFiles) -> str:
    """Return the answer as text: the tables, the objects outside of them, and what each rule means."""
    parts = [paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}")]
    parts += [_table(one) for one in answer.tables]
    parts.append("\n".join(("not of a table", _objects(answer.objects))))
    parts.append(_sums(answer))
    why = {rule: _WHY[rule].format(grace=length(answer.reader_grace)) for rule in answer.rules}
    wide = max(map(len, why), default=0)
    legend = [f"{INDENT}{rule:<{wide}}  {text}" for rule, text in why.items()]
    parts.append("\n".join(("kept by", *legend)))
    return "\n\n".join(parts)


def _table(one: FilesOfTable) -> str:
    table = one.table
    deletes = f", {many(one.deletes, 'delete file')}" if one.deletes else ""
    lines = [
        f"{table.name}   {many(table.rows, 'row')} in {many(table.files, 'file')}, {size(table.size_bytes)}{deletes}"
    ]
    if table.files:
        lines.append(_picture(one.sizes))
    if one.since is not None:
        lines.append(
            paragraph(
                f"{many(one.snapshots, 'snapshot')} since {spell(one.since)} UTC; of the {many(one.log, 'file')} in the "
                f"metadata log, {one.log_kept.objects} exist ({size(one.log_kept.size_bytes)})",
                indent=INDENT,
            )
        )
    lines.append(_objects(one.objects) if one.objects else f"{INDENT}no objects yet")
    return "\n".join(lines)


def _picture(sizes: Sequence[Heap]) -> str:
    """Return a line per class of size, with a bar for its share of the files."""
    total = sum(heap.objects for heap in sizes)
    wide = max(len(f"{heap.objects:,}") for heap in sizes)
    lines = []
    for name, heap in zip(_classes(), sizes, strict=True):
        # A class that has any file has a bar.
        bar = "#" * -(-heap.objects * _BAR // total)
        cells = f"{name:<12}  {heap.objects:>{wide},}  {bar:<{_BAR}}"
        lines.append(f"{INDENT}{cells}  {size(heap.size_bytes) if heap.objects else ''}".rstrip())
    return "\n".join(lines)


def _classes() -> tuple[str, ...]:
    limits = [limit // MB for limit in SIZES]
    between = (f"{low} to {high} MB" for low, high in pairwise(limits))
    return (f"below {limits[0]} MB", *between, f"from {limits[-1]} MB")


def _objects(objects: Sequence[StoredObjects]) -> str:
    lines = [
        (
            _NAMES.get(one.what, one.what),
            f"{one.heap.objects:,}",
            size(one.heap.size_bytes),
            one.rule,
        )
        for one in objects
    ]
    headings = ("what", "objects", "bytes", "kept by")
    laid_out = grid(headings, lines, right=("objects", "bytes"))
    return "\n".join(f"{INDENT}{line}" for line in laid_out.splitlines())


def _sums(answer: LakeFiles) -> str:
    every = [*answer.objects, *(o for t in answer.tables for o in t.objects)]
    total = sum((one.heap for one in every), Heap())
    unneeded = sum((one.heap for one in every if one.rule == "nothing"), Heap())
    return paragraph(
        f"{many(total.objects, 'object')}, {size(total.size_bytes)}; of these {many(unneeded.objects, 'object')}, "
        f"{size(unneeded.size_bytes)}, that nothing needs."
    )


# ---------------------------------------------------------------- JSON and rows


def as_json(answer: LakeFiles, names: CatalogNames) -> Any:
    """Return the JSON of `tally tables --files`: that of `tally tables` with more fields."""
    return {
        "lake": answer.uri,
        "pipeline": answer.pipeline,
        "version": answer.version,
        "reader_grace_s": round(answer.reader_grace.total_seconds()),
        "tables": [
            {
                **json_output.table(one.table, names),
                "sizes": [
                    {"from": low, "below": high, "files": heap.objects, "bytes": heap.size_bytes}
                    for low, high, heap in zip((0, *SIZES), (*SIZES, None), one.sizes, strict=True)
                ],
                "delete_files": one.deletes,
                "snapshots": one.snapshots,
                "snapshots_since": None if one.since is None else keys.instant(one.since),
                "metadata_log": one.log,
                "metadata_log_kept": {
                    "objects": one.log_kept.objects,
                    "bytes": one.log_kept.size_bytes,
                },
                "objects": _stored(one.objects),
            }
            for one in answer.tables
        ],
        "objects": _stored(answer.objects),
    }


def _stored(objects: Sequence[StoredObjects]) -> list[dict[str, Any]]:
    return [
        {
            "what": one.what,
            "kept_by": one.rule,
            "objects": one.heap.objects,
            "bytes": one.heap.size_bytes,
        }
        for one in objects
    ]


def as_rows(answer: LakeFiles) -> Iterator[dict[str, Any]]:
    """Yield a row per table, sort of object and rule; the table is empty for objects of none."""
    for one in answer.tables:
        for row in _stored(one.objects):
            yield {"table": one.table.name, **row}
    for row in _stored(answer.objects):
        yield {"table": "", **row}
