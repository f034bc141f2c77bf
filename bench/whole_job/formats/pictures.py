"""The pictures of a formats bundle: cost, and CPU seconds per further million records, by record set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from bench.whole_job.bars import cost, per_million
from bench.whole_job.formats.report import CASE, has_both, of_set
from bench.whole_job.report import lines_of, marginal

Json = Mapping[str, Any]


def formats_figures(bundle: Json) -> dict[str, Figure]:
    """Return the pictures by name; none if a record set has runs of one size only."""
    if not has_both(bundle):
        return {}
    sets = {name: of_set(bundle, name) for name in bundle["sets"]}
    lines = {
        name: (lines_of(own, CASE, "full"), lines_of(own, CASE, "small"))
        for name, own in sets.items()
    }
    return {
        "cost": cost(lines, bundle["settings"]["records"]),
        "per-million": per_million({name: marginal(own, CASE) for name, own in sets.items()}),
    }
