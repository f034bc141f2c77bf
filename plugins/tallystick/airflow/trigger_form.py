"""The Trigger form of a pipeline's DAG: every parameter of a run, with its type and meaning."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from tallystick.operations.run_request import MODES, NAMES, defaults

_DATES = ", e.g. `2013-01-04` or `2013-01-04T06:00:00+00:00`; without an offset it is UTC."


def form() -> dict[str, Param]:
    """Return the Trigger form: every parameter of a run, with its type and meaning."""
    preset = defaults()
    params = {
        "mode": Param(
            preset["mode"],
            type="string",
            enum=list(MODES),
            title="Mode",
            description_md="`process`: everything that is not committed yet. `replace`: everything in the span again, "
            "whichever run committed it; each interval is replaced whole, in one swap. It needs a span, except in a "
            "backfill. `refresh`: the intervals that are stale because rows of their lookback have changed since; "
            "without dates all of them. `dead_letters`: the intervals that contain dead letters, in the span or without "
            "dates all of them, e.g. after the declaration was corrected. The Backfill form "
            "sends this and all other parameters only if *Override parameters on existing runs* is ticked.",
        ),
        "from": _date(
            preset["from"],
            "From (Trigger only)",
            f"Beginning of the span, inclusive{_DATES} Empty: the end of the ledger. In a backfill leave "
            "it empty: each run has the interval of its own date, and a backfill with this field filled in is refused.",
        ),
        "to": _date(
            preset["to"],
            "To (Trigger only)",
            f"End of the span, exclusive{_DATES} Empty: the Logical Date that Airflow's form shows (now, "
            "unless you change it), less the pipeline's lateness. In a backfill leave it empty, too.",
        ),
        "force": _switch(
            "Recompute although nothing changed",
            "A cleared run replaces its own intervals even if job and declaration are unchanged.",
        ),
        "take_over": _switch(
            "Take over",
            "Cancel the grants of other runs in this span. Their staged files are "
            "discarded; time that this run does not cover becomes a gap.",
        ),
        "accept_loss": _switch(
            "Accept loss",
            "Commit although the topic has lost records of the span. The ledger records the loss permanently.",
        ),
        "accept_compaction": _switch(
            "Accept compaction",
            "Replace although the topic was compacted and has fewer records than are committed.",
        ),
        "accept_dead_letters": _switch(
            "Accept dead letters",
            "Replace although records that are rows now become dead letters, as with a stricter declaration.",
        ),
    }
    assert tuple(params) == NAMES
    return params


def _date(preset: Any, title: str, meaning: str) -> Param:
    # No `format`: JSON schema's date-time refuses 2013-01-04, which the plan task accepts. The plan task validates it.
    return Param(preset, type=["null", "string"], title=title, description_md=meaning)


def _switch(title: str, meaning: str) -> Param:
    return Param(
        False, type="boolean", title=title, description_md=meaning, section="Only if intended"
    )
