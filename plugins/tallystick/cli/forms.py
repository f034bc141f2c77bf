"""The forms of an answer, `--format table|vertical|json|csv`: the only place that chooses one and writes it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import count, islice
from typing import Any

import typer

from tallystick.cli.errors import out, out_json

TEXT_ROWS_MAX = 1000


class Form(StrEnum):
    """The form of an answer: `table` and `vertical` are for people, `json` and `csv` for programs."""

    TABLE = "table"
    VERTICAL = "vertical"
    JSON = "json"
    CSV = "csv"

    @property
    def for_people(self) -> bool:
        """True if the form may leave something out and reports it; the forms for programs contain everything."""
        return self in (Form.TABLE, Form.VERTICAL)


FormOption = typer.Option(
    None,
    "--format",
    "-f",
    help="The form of the answer. Default: table. vertical: one line per column.",
)


def chosen(form: Form | None, *, as_json: bool) -> Form:
    """Return the form that the options select; raises InvalidRequest if they contradict each other."""
    if as_json and form not in (None, Form.JSON):
        from tallystick.errors import InvalidRequest

        raise InvalidRequest(
            f"--json is --format json: expected one form, found json and {form}.",
            hint="use only one of --json and --format.",
        )
    return Form.JSON if as_json else form or Form.TABLE


def write(
    form: Form,
    *,
    table: Callable[[], str],
    document: Callable[[], Any],
    columns: Sequence[str],
    rows: Callable[[], Iterable[Mapping[str, Any]]],
) -> None:
    """Write an answer in a form. `document`: its JSON. `rows`: what vertical and CSV have, by column."""
    if form is Form.TABLE:
        out(table())
    elif form is Form.JSON:
        out_json(document())
    else:
        cells = [tuple(row[name] for name in columns) for row in rows()]
        if form is Form.CSV:
            write_csv(columns, [cells])
        else:
            write_vertical(columns, [cells])


def write_csv(columns: Sequence[str], chunks: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Write rows as CSV, chunk by chunk: a heading, then a line per row; values as in JSON."""
    from tallystick.cli.json_output import cell

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for chunk in chunks:
        writer.writerows([cell(value) for value in row] for row in chunk)
        out(buffer.getvalue().removesuffix("\n"))
        buffer.seek(0)
        buffer.truncate()
    if rest := buffer.getvalue():
        out(rest.removesuffix("\n"))


def write_vertical(columns: Sequence[str], chunks: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Write rows with one line per column, at most TEXT_ROWS_MAX of them, and the number of those left out."""
    from tallystick.cli import text

    numbers = count(1)
    left = TEXT_ROWS_MAX
    more = 0
    for chunk in chunks:
        for row in islice(chunk, left):
            out(text.vertical(next(numbers), columns, row))
        more += max(0, len(chunk) - left)
        left = max(0, left - len(chunk))
    if left == TEXT_ROWS_MAX:
        out("No rows.")
    write_left_out(more)


def write_left_out(rows: int) -> None:
    """Write how many rows are not shown, if any."""
    from tallystick.cli.text import many

    if rows:
        out(f"{many(rows, 'row')} more not shown: --format csv writes all.")
