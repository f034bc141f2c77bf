"""Clock, ids and random numbers: the only module that gets them from the machine; all others take them as arguments."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The clock, ids and random numbers for a use case. `now` is UTC in whole milliseconds, `uuid` 32 hex digits."""

    now: Callable[[], datetime]
    uuid: Callable[[], str]
    monotonic_s: Callable[[], float]
    sleep: Callable[[float], None]
    chance: Callable[[], float]


def system_runtime() -> Runtime:
    """Return the clock, ids and random numbers of this machine."""
    return Runtime(
        now=lambda: whole_ms(datetime.now(UTC)),
        uuid=lambda: uuid.uuid4().hex,
        monotonic_s=time.monotonic,
        sleep=time.sleep,
        chance=random.random,
    )


def whole_ms(at: datetime) -> datetime:
    """Convert an instant to UTC and truncate it to whole milliseconds, Kafka's resolution.

    Raises ValueError if it has no time zone.
    """
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no zone")
    at = at.astimezone(UTC)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
