r"""The place of a column's value in a record, as `source` names it: `device.os`, `items[0].sku`, `http\.method`.

A path is a sequence of names and positions. A dot goes into an object, `[n]` takes the element of a list at position n,
counted from 0. A dot, a bracket or a backslash that belongs to a name is escaped with a backslash.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]
POSITION_MAX = 9_999
_PART = re.compile(r"(?P<name>(?:[^.\[\]\\]|\\[.\[\]\\])*)(?P<positions>(?:\[\d{1,6}\])*)")
_ESCAPED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r"([.\[\]\\])")


def parse_path(text: str) -> Path:
    """Return the names and positions of a path; raises ValueError with the problem."""
    path: list[str | int] = []
    at = 0
    while True:
        found = _PART.match(text, at)
        assert found is not None  # an empty name without positions matches anywhere
        if not found["name"] and text:
            raise ValueError(f"expected a name at character {at}")
        path.append(_ESCAPED.sub(r"\1", found["name"]))
        for position in re.findall(r"\d+", found["positions"]):
            if int(position) > POSITION_MAX:
                raise ValueError(f"expected a position of at most {POSITION_MAX}, found {position}")
            path.append(int(position))
        at = found.end()
        if at == len(text):
            return tuple(path)
        if text[at] != ".":
            raise ValueError(f"expected a dot or the end at character {at}, found {text[at]!r}")
        at += 1


def escaped(name: str) -> str:
    """Return a name as one part of a path: dots, brackets and backslashes with a backslash before them."""
    return _SPECIAL.sub(r"\\\1", name)


def path_text(path: Path) -> str:
    """Return a path for people, without escapes: `device.os`, `items[0].sku`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
