"""Emits one Asset event per interval that a run committed, each once: also if the commit task is retried or cleared."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowRuntimeError

from tallystick.airflow.assets import partition_key
from tallystick.airflow.lines import log_lines
from tallystick.airflow.run import request_of
from tallystick.airflow.run_summary import Covered, Own
from tallystick.format import keys
from tallystick.format.interval import Request
from tallystick.format.page import Entry
from tallystick.lake import Lake

log = logging.getLogger(__name__)

PAGE_MAX = 500
PAGES_MAX = 20
# The clock of Airflow's server dates the events, the clock of a worker dates the commits.
CLOCKS_DIFFER_MAX = timedelta(days=1)


def emit_interval_events(
    context: Any, asset: Asset, *, pipeline: str, lake: Lake, covered: Covered, own: Own
) -> bool:
    """Add an event for each interval that the run committed, unless an earlier try emitted it. Return False if for none.

    Airflow stores the events of a task together with its success, or neither.
    Safe to repeat: a retry of a try that was killed before its success finds no events and emits them, and a cleared
    task finds them (C12). If the events cannot be read, they are emitted again, with the same generations.
    """
    request = request_of(context["dag_run"])
    entries = [
        e for e in covered.committed if e.committed and e.committed.request.same_run(request)
    ]
    if own.already or len(entries) > own.intervals:
        emitted = _emitted(asset, lake, entries, request)
        entries = [e for e in entries if emitted.get(_key(e), 0) < _generation(e)]
    if not entries:
        return False
    event = context["outlet_events"][asset]
    event.add_partitions([_key(e) for e in entries])
    event.extra = {
        "pipeline": pipeline,
        "version": covered.version,
        "intervals": {
            _key(e): {"interval": e.interval.to_json(), "generation": _generation(e)}
            for e in entries
        },
    }
    return True


def _key(entry: Entry) -> str:
    return partition_key(entry.interval.start)


def _generation(entry: Entry) -> int:
    return entry.committed.generation if entry.committed else 0


def _emitted(
    asset: Asset, lake: Lake, entries: Sequence[Entry], request: Request
) -> Mapping[str, int]:
    """Return the highest generation that an event of this run names, by partition key."""
    record = min(e.committed.record for e in entries if e.committed)
    found = lake.record(record)
    since = found.committed_at - CLOCKS_DIFFER_MAX if found else None
    emitted: dict[str, int] = {}
    try:
        for event in events_since(asset, since):
            if (event.source_dag_id, event.source_run_id) == (request.dag, request.run):
                described = (event.extra or {}).get("intervals", {}).get(event.partition_key)
                generation = described["generation"] if described else 0
                emitted[event.partition_key] = max(generation, emitted.get(event.partition_key, 0))
    except AirflowRuntimeError as error:
        why = f"the events of {asset.uri} cannot be read, so they are emitted again: {error}"
        log_lines(log.warning, [why])
        return {}
    return emitted


def events_since(asset: Asset, since: datetime | None) -> Iterable[Any]:
    """Yield the Asset's events in the order of their times, at most PAGES_MAX pages of them."""
    # A task reads events of its own outlet. As an inlet the Asset would be drawn as a loop in Airflow's graph.
    from airflow.sdk.execution_time.context import InletEventsAccessor

    after = keys.instant(since) if since else None
    for _ in range(PAGES_MAX):
        events = InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).limit(PAGE_MAX)
        page = list(events.after(after) if after else events)
        yield from page
        if len(page) < PAGE_MAX or (last := page[-1].timestamp.isoformat()) == after:
            return
        after = last
