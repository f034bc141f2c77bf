"""The error for a name that does not exist, with the similar names that do."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from tallystick.errors import InvalidRequest

_SHOWN = 10


def unknown_name(kind: str, name: str, known: Collection[str], *, none: str) -> InvalidRequest:
    """Return the error: its hint names the similar names, else those that exist; `none` is the hint if there is none."""
    near = similar(name, known)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif known:
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        hint = f"use one of: {', '.join(sorted(known)[:_SHOWN])}{more}."
    else:
        hint = none
    return InvalidRequest(
        f"{kind} {name!r}: expected one that exists, found no {kind} of that name.", hint=hint
    )


def similar(name: str, known: Collection[str]) -> list[str]:
    """Return at most three known names that are like `name`, the best first: another case, a typo, or a part of it."""
    folded = {one.lower(): one for one in sorted(known, reverse=True)}
    near = [folded[one] for one in difflib.get_close_matches(name.lower(), folded, 3, 0.6)]
    parts = [one for one in sorted(known) if name and name.lower() in one.lower()]
    return list(dict.fromkeys([*near, *parts]))[:3]
