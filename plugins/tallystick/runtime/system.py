"""Time, ids and chance: the only place that asks for them, so that everything else takes them as arguments."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a use case may know of its surroundings. `now` is UTC in whole milliseconds, `uuid` 32 hexadecimal digits."""

    now: Callable[[], datetime]
    uuid: Callable[[], str]
    monotonic_s: Callable[[], float]
    sleep: Callable[[float], None]
    chance: Callable[[], float]


def system_runtime() -> Runtime:
    """The clock, ids and chance of this machine."""
    return Runtime(
        now=lambda: whole_ms(datetime.now(UTC)),
        uuid=lambda: uuid.uuid4().hex,
        monotonic_s=time.monotonic,
        sleep=time.sleep,
        chance=random.random,
    )


def whole_ms(at: datetime) -> datetime:
    """Cut an instant down to UTC and whole milliseconds, Kafka's resolution. Raises ValueError without a zone."""
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no zone")
    at = at.astimezone(UTC)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
