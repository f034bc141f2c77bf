"""The trigger that waits for a driver on a cluster, in Airflow's triggerer, while its stage task holds no slot.

It only reads the driver's state, so it can run twice, stop and begin again at any moment. What the driver has staged is
in the lake, and the task reads it from there when it continues.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tallystick.airflow.clusters.opening import cluster_of_trigger
from tallystick.airflow.clusters.port import Cluster
from tallystick.errors import RetryLater, TallystickError

POLL_S = 5.0
PATIENCE_S = 600.0
"""How long the cluster may not answer before the task continues, and fails with an error that is retried."""
# A cluster that has just started again may not have its drivers yet.
_UNKNOWN_S = 60.0
KILL_TRIES = 6
_KILL_PAUSE_S = 1.0


class DriverTrigger(BaseTrigger):
    """Waits until a driver has ended.

    Its one event is {"state", "message"}: the driver's last state, or `unavailable` with the cluster's error. `until`:
    when the task's execution timeout ends, in seconds since 1970; then the driver is killed: `timed_out`.
    """

    def __init__(
        self,
        *,
        conn_id: str,
        driver: str,
        until: float | None = None,
        poll_s: float = POLL_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.conn_id = conn_id
        self.driver = driver
        self.until = until
        self.poll_s = poll_s
        self.patience_s = patience_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments, for the metadata database. They contain no secret."""
        arguments = {
            "conn_id": self.conn_id,
            "driver": self.driver,
            "until": self.until,
            "poll_s": self.poll_s,
            "patience_s": self.patience_s,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Read the driver's state until it has ended. Safe to repeat: it changes nothing before `until`."""
        answered = time.monotonic()
        unknown_since: float | None = None
        cluster: Cluster | None = None
        while True:
            now = time.monotonic()
            try:
                # The connection is read again only after a failure: hundreds of triggers share one process.
                cluster = cluster or await cluster_of_trigger(self.conn_id)
                found = await cluster.state(self.driver)
            except RetryLater as error:
                if now - answered >= self.patience_s:
                    yield _event("unavailable", str(error))
                    return
                self.log.warning("driver %s: %s", self.driver, error)
                cluster = None
            except TallystickError as error:
                yield _event("unavailable", str(error))
                return
            else:
                answered = now
                unknown_since = (unknown_since or now) if found.state == "unknown" else None
                lost = unknown_since is not None and now - unknown_since >= _UNKNOWN_S
                if found.ended or lost:
                    yield _event(found.state, found.message)
                    return
            if self.until is not None and time.time() >= self.until:
                await self.on_kill()
                yield _event("timed_out", "the execution timeout ended")
                return
            await asyncio.sleep(self.poll_s)

    async def on_kill(self) -> None:
        """End the driver, because a person cleared or marked its task. Safe to repeat: an ended driver is not touched.

        A request can be lost, so it is repeated until the cluster reports that the driver has ended, or that it does not
        have it. After some tries the driver is left to end by itself: no run uses what it stages.
        """
        for number in range(1, KILL_TRIES + 1):
            try:
                cluster = await cluster_of_trigger(self.conn_id)
                await cluster.akill(self.driver)
                found = await cluster.state(self.driver)
            except TallystickError as error:
                self.log.warning("driver %s, kill %d: %s", self.driver, number, error)
            else:
                if found.ended or found.state == "unknown":
                    self.log.info(
                        "driver %s: %s after %d kill(s)", self.driver, found.state, number
                    )
                    return
            await asyncio.sleep(_KILL_PAUSE_S)
        self.log.warning("driver %s may still run: it was not seen to end", self.driver)


def _event(state: str, message: str) -> TriggerEvent:
    return TriggerEvent({"state": state, "message": message})  # type: ignore[no-untyped-call]
