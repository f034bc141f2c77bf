"""Which lake a command is about: the one that is named, else TALLYSTICK_LAKE, else that of the running local stack."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tallystick.cli.errors import note
from tallystick.cli.waiting import LIMIT_S, NOTICE_S, WatchedStore
from tallystick.connections.resolve import KAFKA_ENV_PREFIX
from tallystick.errors import SettingsError
from tallystick.lake import Lake
from tallystick.runtime import real_world
from tallystick.store.open import open_store

if TYPE_CHECKING:
    from tallystick.local.info import StackInfo

LAKE_ENV = "TALLYSTICK_LAKE"
DEMO_LAKE = "s3://lake/flights"


def open_lake(uri: str | None, *, writes: bool = False) -> Lake:
    """Open the lake that is meant. Raises SettingsError where none is named and no local stack runs.

    A lake in the bucket of the running local stack is read with the stack's own S3 settings, unless an endpoint is set.
    """
    named = uri or os.environ.get(LAKE_ENV)
    if named is None or (named.startswith("s3://") and not _has_endpoint()):
        stack = _running_stack()
        demo = stack.variables.get(LAKE_ENV, DEMO_LAKE) if stack else None
        if named is None and demo is None:
            raise SettingsError(
                f"no lake is named: neither an argument nor {LAKE_ENV} is given, and no local stack runs here.",
                next_step="give the lake root, e.g. s3://lake/flights (with AWS_ENDPOINT_URL_S3 for another server than "
                "AWS), or start the demo with `make demo`.",
            )
        if stack is not None and (named is None or _in_stacks_bucket(named)):
            if named is not None:
                note(f"{named} is read from the running local stack, not from AWS.")
            named = named or demo
            _use(stack)
    assert named is not None
    # A command that writes keeps the patience of a task: a short one leaves more writes in doubt.
    limit_s = LIMIT_S.get()
    store = open_store(named, answers_within_s=None if writes else limit_s)
    watched = WatchedStore(store, notice_s=min(NOTICE_S, limit_s / 3))
    # Where nothing is written there is nothing to prove about conditional writes.
    return Lake(watched, real_world(), proven=not writes)


def _in_stacks_bucket(uri: str) -> bool:
    from tallystick.local.info import LAKE_BUCKET

    return uri.removeprefix("s3://").partition("/")[0] == LAKE_BUCKET


def _has_endpoint() -> bool:
    return bool(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))


def _running_stack() -> StackInfo | None:
    try:
        from tallystick.cli.stack import default_state_dir
        from tallystick.local.info import read_stack
    except ModuleNotFoundError:
        return None  # tallystick[local] is not installed, so no stack of it runs
    found = read_stack(default_state_dir())
    return found if found is not None and found.running else None


def _use(stack: StackInfo) -> None:
    """Point this process at the stack's S3, and its Kafka where the shell names none. Safe to repeat: the same values."""
    from tallystick.cli.stack import FOREIGN

    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(
        {name: value for name, value in stack.variables.items() if name.startswith("AWS_")}
    )
    for name, value in stack.variables.items():
        if name.startswith(KAFKA_ENV_PREFIX):
            os.environ.setdefault(name, value)
