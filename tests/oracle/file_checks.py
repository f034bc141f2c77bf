"""Checks of the tables' files against the reports and against the listing of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from oracle.place import ROOT, Listed
from oracle.problems import Problems
from oracle.reading import DEAD, TOTALS, CommittedInterval, LiveFile


def check_files(
    intervals: list[CommittedInterval],
    live: Mapping[str, list[LiveFile]],
    listing: Mapping[str, Listed],
    problems: Problems,
) -> None:
    """Check that the tables have exactly the files that the committed intervals added, each once, as reported."""
    owners: dict[str, CommittedInterval] = {}
    for interval in intervals:
        added = {key: table for table in live for key in interval.files(table)}
        for kind, text in _attempt_problems(interval, added):
            problems.add(kind, f"{interval.name}: {text}")
        for key in added:
            if key in owners:
                problems.add("attempt", f"{key} is in {owners[key].name} and in {interval.name}")
            owners[key] = interval
        for text in _object_problems(interval, added, listing):
            problems.add("object", f"{text}")
    for table, files in live.items():
        expected = {key for interval in intervals for key in interval.files(table)}
        for text in _table_problems(table, files, expected, owners):
            problems.add("files", text)
        for file in files:
            listed = listing.get(file.key)
            if listed is not None and listed.size_bytes != file.size_bytes:
                problems.add(
                    "object",
                    f"{file.key} has {listed.size_bytes} bytes, in its manifest {file.size_bytes}",
                )


def _attempt_problems(
    interval: CommittedInterval, added: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield files of an interval that are not those of one report, below the prefix of its plan and one attempt."""
    reported = {f["key"]: f for f in (interval.report or {}).get("files", ())}
    for key in sorted(set(reported) ^ set(added))[:1]:
        yield "files", f"{key} is not in both its report and its record"
    attempts = {key.split("/data/")[-1].rpartition("/")[0] for key in added}
    if len(attempts) > 1:
        yield "attempt", f"files of several attempts: {sorted(attempts)}"
    plan = str(interval.entry["committed"]["plan"]).removeprefix("plans/").removesuffix(".json")
    for key, table in added.items():
        if not key.startswith(f"tables/{table}/data/{plan}/"):
            yield "attempt", f"{key} is outside the prefix of its plan"


def _object_problems(
    interval: CommittedInterval, added: Mapping[str, str], listing: Mapping[str, Listed]
) -> Iterator[str]:
    reported = {f["key"]: f for f in (interval.report or {}).get("files", ())}
    for key in added:
        listed, file = listing.get(key), reported.get(key)
        if listed is None:
            yield f"{key} of {interval.name} does not exist"
        elif file and (listed.size_bytes, listed.etag) != (
            file["size_bytes"],
            file["etag"].strip('"'),
        ):
            yield (
                f"{key} of {interval.name} has {listed.size_bytes} bytes and ETag {listed.etag}, reported were "
                f"{file['size_bytes']} and {file['etag']}: it was overwritten"
            )


def _table_problems(
    table: str, files: list[LiveFile], expected: set[str], owners: Mapping[str, CommittedInterval]
) -> Iterator[str]:
    counts = Counter(file.key for file in files)
    for key, count in counts.items():
        if count > 1:
            yield f"table {table} names {key} {count} times"
    for key in sorted(set(counts) - expected):
        yield f"table {table} has {key}, which no committed interval added"
    for key in sorted(expected - set(counts)):
        yield f"table {table} lacks {key} of {owners[key].name}"


def check_tables(
    root: Mapping[str, Any], chain: Mapping[str, Mapping[str, Any]], problems: Problems
) -> None:
    """Check that each table of any record in the history still exists with the same uuid."""
    for record in chain.values():
        for name, table in record["tables"].items():
            current = root["tables"].get(name, {}).get("uuid")
            if current != table["uuid"]:
                problems.add(
                    "table",
                    f"version {record['version']} had table {name} ({table['uuid']}), now it is {current}",
                )


def table_problems(
    name: str, table: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Iterator[str]:
    """Yield differences of uuid and schema between the root and the metadata, which Iceberg's readers use."""
    if not metadata:
        return
    if metadata["table-uuid"].replace("-", "") != table["uuid"]:
        yield f"table {name} has uuid {metadata['table-uuid']}, in the root {table['uuid']}"
    known = {c["id"]: (c["name"], c["type"]) for c in table["columns"]}
    current = metadata["current-schema-id"]
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == current)
    for column in schema["fields"]:
        field = (column["name"], str(column["type"]).replace(" ", ""))
        if known.get(column["id"]) != field:
            yield f"table {name}: column id {column['id']} is {field}, in the root {known.get(column['id'])}"


def check_dead_counts(
    intervals: list[CommittedInterval], files: list[LiveFile], problems: Problems
) -> None:
    """Check that the table of dead letters has, in each interval, as many rows as are accounted."""
    rows = {file.key: file.rows for file in files}
    for interval in intervals:
        count = sum(rows.get(key, 0) for key in interval.files(DEAD))
        accounted = interval.entry["committed"]["totals"][TOTALS.index("dead_letters")]
        if count != accounted:
            problems.add(
                "account",
                f"{interval.name}: {accounted} dead letters are accounted, the table has {count} rows",
            )


def orphans(
    root: Mapping[str, Any],
    chain: Mapping[str, Mapping[str, Any]],
    intervals: list[CommittedInterval],
    live: Mapping[str, list[LiveFile]],
    listing: Mapping[str, Listed],
) -> list[str]:
    """Return objects that neither the root nor its history names, except Iceberg's metadata, which old snapshots name."""
    named = {ROOT, root["record"], *chain, *(line[2] for line in root["pages"])}
    for interval in intervals:
        named |= {interval.entry["committed"]["record"], interval.entry["committed"]["plan"]}
    for record in chain.values():
        named |= {line[2] for line in record["pages"]}
        for done in record["intervals"]:
            named |= {done["plan"], done["report"]}
            named |= {key for files in done["added"].values() for key in files}
    named |= {file.key for files in live.values() for file in files}
    return [key for key in listing if key not in named and "/metadata/" not in key]
