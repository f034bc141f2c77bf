"""What of a ledger a person should look at: the question of `tally status --ok`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tallystick.errors import InvalidRequest
from tallystick.operations.status import Status

PROBLEMS = ("gaps", "stuck", "pending", "lost", "stale", "dead")
"""By name: what `--ok` looks for, and what `--allow` may leave out."""


def problems(answer: Status, *, allowed: Collection[str] = ()) -> Mapping[str, int]:
    """How many of each problem there are, without the allowed ones. Raises InvalidRequest for a name that is none."""
    unknown = sorted(set(allowed) - set(PROBLEMS))
    if unknown:
        raise InvalidRequest(
            f"--allow {unknown[0]} is not known.", hint=f"use {', '.join(PROBLEMS)}."
        )
    counts = {
        "gaps": len(answer.gaps),
        "stuck": sum(grant.stuck for grant in answer.grants),
        "pending": len(answer.pending),
        "lost": len(answer.lost),
        "stale": len(answer.stale),
        "dead": len(answer.all_dead),
    }
    return {name: n for name, n in counts.items() if n and name not in allowed}
