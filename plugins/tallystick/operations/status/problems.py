"""Counts the problems of a ledger that need a person: the check of `tally status --ok`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tallystick.errors import InvalidRequest
from tallystick.operations.status.read import Status

PROBLEMS = ("gaps", "stuck", "pending", "lost", "stale", "dead")
"""The names of the problems that `--ok` checks for and that `--allow` accepts."""


def problems(answer: Status, *, allowed: Collection[str] = ()) -> Mapping[str, int]:
    """Return the count of each problem that exists and is not allowed.

    Raises InvalidRequest if `allowed` has an unknown name.
    """
    unknown = sorted(set(allowed) - set(PROBLEMS))
    if unknown:
        raise InvalidRequest(
            f"--allow: expected a problem, found {unknown[0]}.",
            hint=f"use {', '.join(PROBLEMS)}.",
        )
    counts = {
        "gaps": len(answer.gaps),
        "stuck": sum(grant.stuck for grant in answer.grants),
        "pending": len(answer.pending) + len(answer.unregistered),
        "lost": len(answer.lost),
        "stale": len(answer.stale),
        "dead": len(answer.all_dead),
    }
    return {name: n for name, n in counts.items() if n and name not in allowed}
