"""The allowed parse rules of a column, checked when the column is declared and not for every row of a run.

    iso8601 (default)            text
    epoch_s, epoch_ms, epoch_us  a JSON number
    epoch_days                   a whole JSON number, only for a date
    any text with a %            a Python strptime format with the directives below

`tallystick.engine.decode.json.instants` applies the rules.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

EPOCH_FACTORS: Final = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
EPOCH_DAYS: Final = "epoch_days"
# Not included: %c, %x and %X, because they depend on the machine's locale; %Z, because a zone name can mean several
# offsets.
DIRECTIVES: Final = "YmdHMSfzjyBbAaIpGVuwUW"
_YEARS: Final = ("Y", "y", "G")
_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)
_SAMPLE: Final = datetime(2013, 11, 25, 17, 43, 21, 123456)  # noqa: DTZ001 - its zone is added if the rule has one


def rule_problem(rule: str, kind: str) -> str | None:
    """Return why `rule` cannot parse a column of type `kind` (date, timestamp or timestamptz); None if it can."""
    if rule == "iso8601" or rule in EPOCH_FACTORS:
        return None
    if rule == EPOCH_DAYS:
        return None if kind == "date" else f"has no time of day, which a {kind} has"
    if "%" not in rule:
        return "is neither iso8601, epoch_s, epoch_ms, epoch_us, epoch_days nor a strptime format"
    used = [name for name in _DIRECTIVE.findall(rule) if name != "%"]
    for name in used:
        if not name:
            return "ends in a % without a letter"
        if name not in DIRECTIVES:
            return f"has %{name}, which is not one of {' '.join('%' + d for d in DIRECTIVES)}"
        if used.count(name) > 1:
            return f"has %{name} twice"
    if not set(used) & set(_YEARS):
        return "has no year (%Y)"
    if kind == "timestamptz" and "z" not in used and not rule.endswith("Z"):
        return "has no offset from UTC: neither %z nor a Z at its end"
    if kind != "timestamptz" and "z" in used:
        return f"has an offset from UTC (%z), which a {kind} cannot store"
    return _round_trip_problem(rule, zoned="z" in used)


def _round_trip_problem(rule: str, *, zoned: bool) -> str | None:
    sample = _SAMPLE.replace(tzinfo=UTC) if zoned else _SAMPLE
    try:
        text = sample.strftime(rule)
        read_back = datetime.strptime(text, rule).strftime(rule)  # noqa: DTZ007 - only its text is compared
    except (ValueError, re.error) as error:
        return f"cannot be read back: {error}"
    return None if text == read_back else f"reads {text!r} back as {read_back!r}"
