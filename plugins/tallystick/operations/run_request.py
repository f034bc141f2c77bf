"""The parameters and dates of an Airflow run, checked and typed, and the interval that they request.

Unknown names are refused: Airflow accepts unknown conf keys, and a mistyped `form` must not replay a year.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from tallystick.errors import InvalidRequest, NotYet
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.pipeline import Pipeline
from tallystick.runtime import whole_ms

MODES = ("process", "replace", "refresh", "dead_letters")
# The modes that replace a selection of committed intervals and fill no gap; without dates, they look at all of them.
SELECTING = ("refresh", "dead_letters")
SWITCHES = ("force", "take_over", "accept_loss", "accept_compaction", "accept_dead_letters")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The maximum by which a producer's clock may run ahead, as the default of the broker's message.timestamp.after.max.ms
# (KIP-937). A record with a later timestamp (such as microseconds for milliseconds) belongs to the interval in which it
# arrives, as a late record does.
AHEAD_MAX = timedelta(hours=1)
NAMES = ("mode", "from", "to", *SWITCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParams:
    """The parameters of a run as typed values. `replay_dag` describes each of them for users."""

    mode: str = "process"
    start: datetime | None = None
    end: datetime | None = None
    force: bool = False
    take_over: bool = False
    accept_loss: bool = False
    accept_compaction: bool = False
    accept_dead_letters: bool = False


def parse_params(raw: Mapping[str, Any]) -> RunParams:
    """Parse the params or conf of a run. Raises InvalidRequest if a name or a value is not allowed."""
    unknown = sorted(set(raw) - set(NAMES))
    if unknown:
        raise InvalidRequest(
            f"parameter {unknown[0]!r} is not allowed.", hint=f"use some of {', '.join(NAMES)}."
        )
    mode = raw.get("mode", "process")
    if mode not in MODES:
        raise InvalidRequest(
            f"mode={mode!r} is not allowed.", hint=f"use one of {', '.join(MODES)}."
        )
    switches: dict[str, bool] = {}
    for name in SWITCHES:
        value = raw.get(name, False)
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name}={value!r} is not allowed.", hint="use true or false.")
        switches[name] = value
    fewer = ("accept_loss", "accept_compaction", "accept_dead_letters")
    if mode in SELECTING and (set_ := [name for name in fewer if switches[name]]):
        raise InvalidRequest(
            f"mode={mode} does not allow {set_[0]}=true.",
            hint="use mode=replace with from and to, to accept for one interval that rows become fewer.",
        )
    start, end = (_instant(name, raw.get(name)) for name in ("from", "to"))
    if (start is None) != (end is None):
        present, missing = ("from", "to") if end is None else ("to", "from")
        raise InvalidRequest(
            f"{present!r} is set without {missing!r}.", hint="set both, or neither."
        )
    if start is not None and end is not None and not start < end:
        raise InvalidRequest(
            f"from={keys.instant(start)} is not before to={keys.instant(end)}.",
            hint="set `from` before `to`: intervals are half-open, [from, to), in UTC.",
        )
    return RunParams(mode=mode, start=start, end=end, **switches)


def _instant(name: str, value: Any) -> datetime | None:
    if value is None or value == "":
        return None
    try:
        if not isinstance(value, str):
            raise ValueError("not a string")
        at = datetime.fromisoformat(value)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        if at.microsecond % 1000:
            raise ValueError("finer than a millisecond")
        if at < EPOCH:
            raise ValueError("before 1970, the first year of Kafka's timestamps")
        return whole_ms(at)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{name}={value!r} is not a date ({error}).",
            hint="use e.g. 2013-01-04T06:00:00+00:00, or 2013-01-04; without an offset it is UTC.",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDates:
    """The dates that Airflow gives a run: a data interval, or only `run_after` if it was triggered without dates."""

    data_interval: Interval | None
    run_after: datetime


def requested_interval(
    pipeline: Pipeline, params: RunParams, dates: RunDates, *, now: datetime
) -> Interval | datetime:
    """Return the interval that a run requests, or only its end: then it begins at the end of the ledger.

    Raises NotYet if the lateness of the data interval has not passed, or if the run is due later. Raises InvalidRequest
    if `from` and `to` name an interval whose lateness has not passed, or if mode=replace has no dates.
    """
    latest = whole_ms(now - pipeline.lateness)
    if params.start is not None and params.end is not None:
        if params.end > latest:
            raise InvalidRequest(
                f"to={keys.instant(params.end)} is later than {keys.instant(latest)} (now, less the pipeline's lateness "
                f"of {pipeline.lateness}).",
                hint="use an earlier `to`: records of the future cannot be replayed.",
            )
        return Interval(start=params.start, end=params.end)
    if dates.data_interval is not None:
        if dates.data_interval.end > latest:
            raise NotYet(
                f"interval {dates.data_interval} may still get records until "
                f"{keys.instant(whole_ms(dates.data_interval.end + pipeline.lateness))}.",
                hint="do nothing: the task retries by itself.",
            )
        return dates.data_interval
    if params.mode == "replace":
        raise InvalidRequest(
            "mode=replace is set without dates.",
            hint="set `from` and `to`, or use a backfill, whose runs have dates.",
        )
    if dates.run_after > now:
        # Every try of a run must request the same interval, even if this machine's clock is behind Airflow's.
        raise NotYet(
            f"the run is due at {keys.instant(whole_ms(dates.run_after))}, and the clock of this machine reads "
            f"{keys.instant(whole_ms(now))}.",
            hint="do nothing: the task retries by itself.",
        )
    return whole_ms(dates.run_after - pipeline.lateness)


def defaults() -> dict[str, Any]:
    """Return the default params of a run, by their public names."""
    return {"mode": "process", "from": None, "to": None, **dict.fromkeys(SWITCHES, False)}


assert {f.name for f in fields(RunParams)} == {"mode", "start", "end", *SWITCHES}
