"""The limit of dead letters: above it, a run fails instead of committing the interval."""

from __future__ import annotations

from decimal import Decimal

from tallystick.pipeline.columns import refuse

# A share counts from this many records on: one broken record among three is not a wrong declaration.
SHARE_RECORDS_MIN = 10
Limit = int | float | None


def check_limit(limit: Limit, what: str) -> None:
    """Raise InvalidPipeline if `limit` is neither None, a count from 0 on, nor a share above 0 and up to 1.0."""
    is_count = type(limit) is int and limit >= 0
    is_share = isinstance(limit, float) and 0 < limit <= 1
    if limit is None or is_count or is_share:
        return
    raise refuse(
        f"{what}: expected a count of at least 0 or a share between 0.0 and 1.0, found {limit!r}.",
        "use e.g. max_dead_letters=100 for a count per interval, 0.05 for 5 % of its records, 0 for none, or 1.0 for no "
        "limit.",
    )


def exceeded(limit: Limit, *, records: int, dead: int) -> str | None:
    """Return the limit in words if an interval with this many records and dead letters exceeds it, else None.

    None as a limit: an interval of at least `SHARE_RECORDS_MIN` records must have one that is no dead letter.
    """
    total = records + dead
    if isinstance(limit, int):
        return f"at most {limit:,} dead letters" if dead > limit else None
    if total < SHARE_RECORDS_MIN:
        return None
    if limit is None:
        return "at least one record that is no dead letter" if not records else None
    # Decimal(str()): the share as it is written, so that 0.1 of 30 records is 3.
    return (
        f"at most {limit:.4g} of the records as dead letters"
        if dead > Decimal(str(limit)) * total
        else None
    )


def stored(limit: Limit) -> int | str | None:
    """Return the limit as a plan stores it: a share as text."""
    return str(limit) if isinstance(limit, float) else limit


def from_stored(limit: int | str | None) -> Limit:
    """Return the limit that a plan stores; raises ValueError if the text is no number."""
    return float(limit) if isinstance(limit, str) else limit
