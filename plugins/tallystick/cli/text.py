"""Renders answers as text for people, in at most 100 columns. If something is left out, the text reports it.

Words are not broken: if a key or URI is longer than a line, it stays whole, so that it can be copied.
"""

from __future__ import annotations

import json
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tallystick.cli import colour
from tallystick.format.interval import Interval
from tallystick.format.page import TOTALS, Totals
from tallystick.operations.preview import Preview
from tallystick.operations.release import Released
from tallystick.operations.status import CommitLine, CommitLog, LakeTables, TableStatus
from tallystick.operations.verify.proof import CHECKS, Check, Finding, Proof
from tallystick.store.probe import ProbeResult, ProbeStep

WIDTH_MAX = 100
INDENT = "  "


def width() -> int:
    """Return the width of texts in columns: that of the terminal, from 40 to 100."""
    return max(40, min(WIDTH_MAX, shutil.get_terminal_size((WIDTH_MAX, 24)).columns))


def paragraph(text: str, *, indent: str = "") -> str:
    """Break a text between words into lines that fit."""
    return textwrap.fill(
        text,
        width(),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def grid(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[str] = (),
    fold: bool = True,
) -> str:
    """Lay out columns; the `right` ones are numbers. If a cell does not fit, it is folded, or truncated if not `fold`."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=width(), markup=False, emoji=False, highlight=False, color_system=None)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    numbers = set(right)
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in numbers else "left",
            no_wrap=heading in numbers,
            overflow="fold" if fold else "ellipsis",
        )
    for row in rows:
        table.add_row(*row)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def shown(text: str) -> str:
    """Escape characters that are not printable, so that the text cannot move the terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# ---------------------------------------------------------------- values


def spell(at: datetime) -> str:
    """Return an instant (UTC) in its shortest exact form: to the day, minute, second or millisecond."""
    if at == at.replace(hour=0, minute=0, second=0, microsecond=0):
        return f"{at:%Y-%m-%d}"
    if at == at.replace(second=0, microsecond=0):
        return f"{at:%Y-%m-%d %H:%M}"
    if not at.microsecond:
        return f"{at:%Y-%m-%d %H:%M:%S}"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def span(interval: Interval) -> str:
    """Return an interval as text."""
    return f"{spell(interval.start)} to {spell(interval.end)}"


def many(count: int, what: str) -> str:
    """Return a count with its noun, e.g. "2 boundaries"; of "row with lineage", the first word is the noun."""
    if count == 1:
        return f"1 {what}"
    thing, rest = (what, "") if " with " not in what else what.split(" ", 1)
    things = f"{thing[:-1]}ies" if thing.endswith("y") and thing[-2:] != "ay" else f"{thing}s"
    return f"{count:,} {things} {rest}".rstrip()


def classes(totals: Totals) -> str:
    """Return totals as text, without empty classes other than records."""
    words = {"records": "record", "dead_letters": "dead letter"}
    found = [(name, getattr(totals, name)) for name in TOTALS]
    parts = [
        many(count, words[name]) if name in words else f"{count:,} {name}"
        for name, count in found
        if count or name == "records"
    ]
    return ", ".join(parts)


def size(size_bytes: int) -> str:
    """Return a size in bytes as text, with a decimal unit."""
    amount = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def length(every: timedelta) -> str:
    """Return a duration as text."""
    seconds = round(every.total_seconds())
    for unit, of in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds % of == 0:
            return many(seconds // of, unit)
    return many(seconds, "second")


def age(since: timedelta) -> str:
    """Return an age in its largest full unit: 3 d, 5 h, 20 min."""
    minutes = int(since.total_seconds() // 60)
    for unit, of in (("d", 1440), ("h", 60)):
        if minutes >= of:
            return f"{minutes // of} {unit}"
    return f"{minutes} min"


def command(argv: Sequence[str]) -> str:
    """Return a command to copy into a shell, broken between its options if it is too long for a line."""
    words = [shlex.quote(word) for word in argv]
    lines: list[str] = []
    # An option stays on the line of its value, so that each line is readable by itself.
    groups: list[str] = []
    for word in words:
        if groups and groups[-1].startswith("--") and " " not in groups[-1]:
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    for group in groups:
        if lines and len(lines[-1]) + len(group) + 3 <= WIDTH_MAX:
            lines[-1] += f" {group}"
        else:
            lines.append(f"{INDENT * (2 if lines else 1)}{group}")
    return " \\\n".join(lines)


# ---------------------------------------------------------------- log and tables


def log(answer: CommitLog) -> str:
    """Return commits as text, newest first."""
    parts = [paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}")]
    parts += [_commit(line) for line in answer.commits]
    if not answer.commits:
        parts.append("Nothing is committed yet.")
    if answer.before is not None:
        parts.append("Older commits are not shown: --limit shows more.")
    return "\n\n".join(parts)


def _commit(line: CommitLine) -> str:
    from tallystick.format import keys

    at = f"{line.committed_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    lines = [f"version {line.version}   {at}   tallystick {line.library}"]
    for one in line.intervals:
        replaces = f", replaces version {keys.record_version(one.replaces)}" if one.replaces else ""
        lines.append(f"{INDENT}{span(one.interval)}   generation {one.generation}{replaces}")
        lines.append(paragraph(f"{classes(one.totals)}   by {one.request}", indent=INDENT * 2))
    if line.compactions:
        tables = sorted({keys.compaction_parts(key)[0] for key in line.compactions})
        lines.append(paragraph(f"compaction of {', '.join(tables)}", indent=INDENT))
    return "\n".join(lines)


def tables(answer: LakeTables) -> str:
    """Return tables as text, with all that an Iceberg reader needs."""
    parts = [paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}")]
    parts += [_table(table) for table in answer.tables]
    if not answer.tables:
        parts.append("No tables yet: the first plan creates them.")
    return "\n\n".join(parts)


def _table(table: TableStatus) -> str:
    by = f", by {', '.join(table.partition_by)}" if table.partition_by else ""
    rows = f"{many(table.rows, 'row')} in {many(table.files, 'file')}, {size(table.size_bytes)}{by}"
    columns = ", ".join(f"{c.name} {c.text}{'' if c.required else '?'}" for c in table.columns)
    return "\n".join(
        (
            f"{table.name}   {rows}",
            paragraph(table.metadata or "no metadata yet", indent=INDENT),
            paragraph(columns, indent=INDENT),
        )
    )


# ---------------------------------------------------------------- plan, release, probe

_WHY = {
    "plan": "would be planned: nothing is committed there",
    "replace": "would be replaced; committed by {owner}",
    "stays": "remains as {owner} committed it (--replace would replace it)",
    "held": "is granted to {owner} and left out (--take-over would cancel that)",
    "cancel": "the grant of {owner} would be cancelled",
}


def preview(answer: Preview) -> str:
    """Return the actions of a new run as text, part by part."""
    lines = [
        paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}"),
        f"a new run of {span(answer.interval)}:",
    ]
    for part in answer.parts:
        why = _WHY[part.what].format(owner=part.owner)
        lines.append(paragraph(f"{span(part.interval)}: {why}", indent=INDENT))
    if answer.boundaries:
        lines.append(f"{many(answer.boundaries, 'boundary')} would be looked up in Kafka and set.")
    if not any(part.what in ("plan", "replace") for part in answer.parts):
        lines.append("Nothing would be staged: no Spark would be started.")
    return "\n".join(lines)


def released(answer: Released) -> str:
    """Return the cancelled grant as text, and what remains of its interval."""
    left = "its committed rows remain" if answer.committed else "it is a gap now"
    return paragraph(
        f"Released {span(answer.interval)}: the grant of {answer.request}, generation {answer.generation}, is cancelled "
        f"by version {answer.version}; {left}. Plan {answer.plan} can never be committed."
    )


def probe_step(step: ProbeStep) -> str:
    """Return one check of a store and its result as text."""
    good = step.found == step.expected or step.found in step.expected.split(" or ")
    line = paragraph(f"{'ok  ' if good else 'FAIL'}  {step.request}")
    lines = [colour.first_word(line, "good" if good else "bad")]
    if not good:
        lines.append(paragraph(f"expected  {step.expected}", indent=INDENT * 3))
        lines.append(paragraph(f"found     {step.found}", indent=INDENT * 3))
    return "\n".join(lines)


def probed(answer: ProbeResult) -> str:
    """Return the verdict on a store that passed."""
    left = (
        f" Its scratch object {answer.scratch} could not be deleted: these credentials do not allow it."
        if answer.scratch_left
        else ""
    )
    return paragraph(f"{answer.uri} honours conditional writes.{left}")


# ---------------------------------------------------------------- verify


def check(answer: Check) -> str:
    """Return one check as text: its counts, or its first counter-example if it failed."""
    if answer.proven:
        counts = ", ".join(many(count, what) for what, count in answer.counted.items())
        lines = textwrap.wrap(counts or "nothing to check", width() - 16) or [""]
        head = [
            f"{colour.painted('ok', 'good')}    {answer.name:<9} {lines[0]}",
            *(f"{'':16}{line}" for line in lines[1:]),
        ]
        return "\n".join((*head, *(paragraph(line, indent=" " * 16) for line in answer.remarks)))
    lines = [
        f"{colour.painted('FAIL', 'bad')}  {answer.name:<9} {many(answer.problems, 'counter-example')}, the first:"
    ]
    lines.append(_finding(answer.findings[0]))
    lines.append(paragraph(f"Expected: {CHECKS[answer.name]}.", indent=INDENT * 3))
    if answer.problems > 1:
        lines.append(f"{INDENT * 3}{answer.problems - 1:,} more: --json lists them.")
    return "\n".join(lines)


def _finding(finding: Finding) -> str:
    indent = INDENT * 3
    return "\n".join(
        (
            paragraph(f"{finding.rule}: {finding.message}", indent=indent),
            paragraph(f"in        {finding.where}", indent=indent),
            paragraph(f"expected  {finding.expected}", indent=indent),
            paragraph(f"found     {finding.found}", indent=indent),
        )
    )


def proof(answer: Proof) -> str:
    """Return the verdict of `tally verify` as text."""
    of = f"{answer.pipeline} at {answer.uri}, version {answer.version}"
    if not answer.proven:
        broken = [one.name for one in answer.checks if not one.proven]
        failed = paragraph(f"NOT PROVEN: {of}. Counter-examples in: {', '.join(broken)}.")
        return failed.replace("NOT PROVEN", colour.painted("NOT PROVEN", "bad"), 1)
    rest = "" if answer.deep else " Rows were not read; use --deep to read them."
    return colour.first_word(paragraph(f"Proven: {of}.{rest}"), "good")


# ---------------------------------------------------------------- sql


def rows(columns: Sequence[str], found: Sequence[Sequence[Any]]) -> str:
    """Return the rows of a query as a grid; a row that is too wide has folded cells."""
    numbers = [
        name
        for at, name in enumerate(columns)
        if any(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in found)
    ]
    cells = [[cell(value) for value in row] for row in found]
    return grid([shown(name) for name in columns], cells, right=numbers)


def fits(columns: Sequence[str], found: Sequence[Sequence[Any]]) -> bool:
    """Return True if the grid of these rows has no folded cell."""
    widths = [max(len(cell(value)) for value in of) for of in zip(columns, *found, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1) <= width()


def vertical(number: int, columns: Sequence[str], row: Sequence[Any]) -> str:
    """Return one row with a line per column. A long value stays on its line, so that it can be copied."""
    names = [shown(name) for name in columns]
    wide = max(map(len, names), default=0)
    lines = [f"-[ row {number} ]".ljust(wide + 3, "-")]
    lines += [
        f"{name:<{wide}} | {cell(value)}".rstrip() for name, value in zip(names, row, strict=True)
    ]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Return one value as text: null as nothing, bytes as UTF-8 or else hexadecimal, lists and structs as JSON."""
    if value is None:
        return ""
    plain = _plain(value)
    if isinstance(plain, str):
        return shown(plain)
    return shown(json.dumps(plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        body = bytes(value)
        try:
            return body.decode()
        except UnicodeDecodeError:
            return f"0x{body.hex()}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return value if value is None or isinstance(value, bool | int) else str(value)
