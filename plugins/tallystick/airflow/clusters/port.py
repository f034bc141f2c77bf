"""The port of a cluster that runs drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

State = Literal["waiting", "running", "succeeded", "failed", "killed", "unknown"]
_ATTEMPT = "--attempt"
ENDED: frozenset[State] = frozenset({"succeeded", "failed", "killed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRequest:
    """One driver to run: the job file as the cluster's machines see it, its arguments, and Spark's options.

    `environment` has no secrets: a driver on a cluster takes its credentials from the cluster.
    """

    name: str
    job: str
    arguments: Sequence[str]
    conf: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def attempt(self) -> str:
        """The attempt in the arguments, which is unique to the driver: a cluster can find the driver by it."""
        return self.arguments[list(self.arguments).index(_ATTEMPT) + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverState:
    """The state of a driver. `unknown`: the cluster does not have it (any more). `message`: what the cluster reports."""

    state: State
    message: str = ""

    @property
    def ended(self) -> bool:
        """True if the driver runs no more."""
        return self.state in ENDED


class Cluster(Protocol):
    """A cluster that runs drivers.

    Each verb raises ClusterUnavailable if the cluster does not answer; then it is not known if a submission or a kill was
    carried out. It raises SettingsError if the cluster refuses what is configured.
    """

    def submit(self, request: DriverRequest) -> str:
        """Start a driver and return its id.

        Safe to repeat: each submission is another driver, with an attempt of its own. One whose id was lost runs to its
        end, and no run uses what it staged.
        """
        ...

    async def state(self, driver: str) -> DriverState:
        """Return the state of a driver."""
        ...

    def kill(self, driver: str) -> None:
        """End a driver. Safe to repeat: a driver that has ended is not touched."""
        ...

    async def akill(self, driver: str) -> None:
        """End a driver, in the triggerer. Safe to repeat: as `kill`."""
        ...
