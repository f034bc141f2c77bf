"""Lays out columns whose last one is never cut or broken: run ids, keys and addresses can be copied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tallystick.cli.text import INDENT, width

_BETWEEN = "  "
Line = tuple[str, ...] | str
"""The cells of a row; or a heading of the rows below it, as it is."""


def listing(
    headings: Sequence[str],
    lines: Sequence[Line],
    *,
    right: Collection[str] = (),
    paint: Mapping[str, Callable[[str], str]] | None = None,
) -> str:
    """Lay out rows; the `right` columns are numbers. `paint`: the colour of a column's cells, by its heading.

    If a row is too wide for the terminal, its last cell is on a line of its own, whole.
    """
    rows = [tuple(headings), *(line for line in lines if not isinstance(line, str))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(headings) - 1)]

    def padded(row: Sequence[str], *, plain: bool) -> str:
        cells = []
        for at, wide in enumerate(widths):
            name, cell = headings[at], row[at]
            found = None if plain or not cell else (paint or {}).get(name)
            space = " " * (wide - len(cell))
            shown = cell if found is None else found(cell)
            cells.append(f"{space}{shown}" if name in right else f"{shown}{space}")
        return _BETWEEN.join(cells)

    left = sum(widths) + len(_BETWEEN) * len(widths)
    laid_out = [(padded(headings, plain=True) + _BETWEEN + headings[-1]).rstrip()]
    for line in lines:
        if isinstance(line, str):
            laid_out.append(line)
        elif left + len(line[-1]) <= width():
            laid_out.append((padded(line, plain=False) + _BETWEEN + line[-1]).rstrip())
        else:
            laid_out += [padded(line, plain=False).rstrip(), f"{INDENT * 2}{line[-1]}"]
    return "\n".join(laid_out)
