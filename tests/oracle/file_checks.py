"""The files that make up the tables, checked against what was reported and against the listing of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from oracle.place import ROOT, Listed
from oracle.problems import Problems
from oracle.reading import DEAD, TOTALS, LiveFile, Piece


def check_files(
    pieces: list[Piece],
    live: Mapping[str, list[LiveFile]],
    listing: Mapping[str, Listed],
    problems: Problems,
) -> None:
    """The tables are made of exactly the files that the committed intervals added, each once, as they were reported."""
    owners: dict[str, Piece] = {}
    for piece in pieces:
        added = {key: table for table in live for key in piece.files(table)}
        for kind, text in _attempt_problems(piece, added):
            problems.say(kind, f"{piece.name}: {text}")
        for key in added:
            if key in owners:
                problems.say("attempt", f"{key} is in {owners[key].name} and in {piece.name}")
            owners[key] = piece
        for text in _object_problems(piece, added, listing):
            problems.say("object", f"{text}")
    for table, files in live.items():
        wanted = {key for piece in pieces for key in piece.files(table)}
        for text in _table_problems(table, files, wanted, owners):
            problems.say("files", text)
        for file in files:
            there = listing.get(file.key)
            if there is not None and there.size_bytes != file.size_bytes:
                problems.say(
                    "object",
                    f"{file.key} has {there.size_bytes} bytes, its manifest says {file.size_bytes}",
                )


def _attempt_problems(piece: Piece, added: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """All files of an interval are those of one report, below the prefix of its plan and its one attempt."""
    reported = {f["key"]: f for f in (piece.report or {}).get("files", ())}
    for key in sorted(set(reported) ^ set(added))[:1]:
        yield "files", f"{key} is not in both its report and its record"
    attempts = {key.split("/data/")[-1].rpartition("/")[0] for key in added}
    if len(attempts) > 1:
        yield "attempt", f"it is made of several attempts: {sorted(attempts)}"
    plan = str(piece.entry["committed"]["plan"]).removeprefix("plans/").removesuffix(".json")
    for key, table in added.items():
        if not key.startswith(f"tables/{table}/data/{plan}/"):
            yield "attempt", f"{key} lies outside the prefix of its plan"


def _object_problems(
    piece: Piece, added: Mapping[str, str], listing: Mapping[str, Listed]
) -> Iterator[str]:
    reported = {f["key"]: f for f in (piece.report or {}).get("files", ())}
    for key in added:
        there, said = listing.get(key), reported.get(key)
        if there is None:
            yield f"{key} of {piece.name} is not there"
        elif said and (there.size_bytes, there.etag) != (
            said["size_bytes"],
            said["etag"].strip('"'),
        ):
            yield (
                f"{key} of {piece.name} has {there.size_bytes} bytes and ETag {there.etag}, reported were "
                f"{said['size_bytes']} and {said['etag']}: it was overwritten"
            )


def _table_problems(
    table: str, files: list[LiveFile], wanted: set[str], owners: Mapping[str, Piece]
) -> Iterator[str]:
    counts = Counter(file.key for file in files)
    for key, count in counts.items():
        if count > 1:
            yield f"table {table} names {key} {count} times"
    for key in sorted(set(counts) - wanted):
        yield f"table {table} holds {key}, which no committed interval added"
    for key in sorted(wanted - set(counts)):
        yield f"table {table} lacks {key} of {owners[key].name}"


def check_tables(
    root: Mapping[str, Any], chain: Mapping[str, Mapping[str, Any]], problems: Problems
) -> None:
    """A table that any record of the history knew is still there, as the same table."""
    for record in chain.values():
        for name, table in record["tables"].items():
            now = root["tables"].get(name, {}).get("uuid")
            if now != table["uuid"]:
                problems.say(
                    "table",
                    f"version {record['version']} had table {name} ({table['uuid']}), now it is {now}",
                )


def table_problems(
    name: str, table: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Iterator[str]:
    """Iceberg's readers go by the metadata's own uuid and schema: both are what the root says."""
    if not metadata:
        return
    if metadata["table-uuid"].replace("-", "") != table["uuid"]:
        yield f"table {name} has uuid {metadata['table-uuid']}, the root says {table['uuid']}"
    known = {c["id"]: (c["name"], c["type"]) for c in table["columns"]}
    current = metadata["current-schema-id"]
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == current)
    for column in schema["fields"]:
        said = (column["name"], str(column["type"]).replace(" ", ""))
        if known.get(column["id"]) != said:
            yield f"table {name}: column id {column['id']} is {said}, the root says {known.get(column['id'])}"


def check_dead_counts(pieces: list[Piece], files: list[LiveFile], problems: Problems) -> None:
    """The table of dead letters has, interval by interval, as many rows as are accounted."""
    rows = {file.key: file.rows for file in files}
    for piece in pieces:
        held = sum(rows.get(key, 0) for key in piece.files(DEAD))
        said = piece.entry["committed"]["totals"][TOTALS.index("dead_letters")]
        if held != said:
            problems.say(
                "account", f"{piece.name}: {said} dead letters are accounted, {held} rows are there"
            )


def orphans(
    root: Mapping[str, Any],
    chain: Mapping[str, Mapping[str, Any]],
    pieces: list[Piece],
    live: Mapping[str, list[LiveFile]],
    listing: Mapping[str, Listed],
) -> list[str]:
    """Objects that neither the root nor its history names. Iceberg's own metadata is left out: old snapshots keep it."""
    named = {ROOT, root["record"], *chain, *(line[2] for line in root["pages"])}
    for piece in pieces:
        named |= {piece.entry["committed"]["record"], piece.entry["committed"]["plan"]}
    for record in chain.values():
        named |= {line[2] for line in record["pages"]}
        for done in record["intervals"]:
            named |= {done["plan"], done["report"]}
            named |= {key for files in done["added"].values() for key in files}
    named |= {file.key for files in live.values() for file in files}
    return [key for key in listing if key not in named and "/metadata/" not in key]
