"""Opens the lake of a command: the one in its argument, otherwise TALLYSTICK_LAKE. There is no other default."""

from __future__ import annotations

import os

from tallystick.cli.errors import note
from tallystick.cli.waiting import LIMIT_S, WatchedStore, notice_s
from tallystick.errors import SettingsError
from tallystick.lake import Lake
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store

LAKE_ENV = "TALLYSTICK_LAKE"
ENDPOINT_ENVS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def open_lake(uri: str | None, *, writes: bool = False, begins: bool = False) -> Lake:
    """Open the lake at `uri` or at TALLYSTICK_LAKE; raises SettingsError if neither is given.

    If the environment selects a server other than AWS, it is named on standard error. `writes`: also reads the root, and
    raises what `Lake.load_existing` does. `begins`: the command may write the first root, so that none need be there.
    """
    named = uri or os.environ.get(LAKE_ENV)
    if not named:
        raise SettingsError(
            f"no lake is named: neither the argument nor {LAKE_ENV} is set.",
            hint="name the URI of the lake, e.g. s3://lake/flights. For the local stack set its variables first: "
            'eval "$(tally local env)".',
        )
    if named.startswith("s3://") and (endpoint := _endpoint()) is not None:
        note(f"Lake {named} at {endpoint}.")
    # A write has the long time limit of a task: after a short one, more writes have an unknown outcome.
    store = open_store(named, reads_within_s=LIMIT_S.get(), writes_too=not writes)
    watched = WatchedStore(store, notice_s=notice_s())
    # If nothing is written, the store does not need the check of conditional writes.
    lake = Lake(watched, system_runtime(), proven=not writes, begun=False)
    if writes:
        # Before the check, which writes: if the store does not answer at all, the command ends here, within its limit.
        if begins:
            lake.load()
        else:
            lake.load_existing()
    return lake


def _endpoint() -> str | None:
    """Return the S3 server that the environment selects instead of AWS, in boto3's order; None for AWS."""
    return next((os.environ[name] for name in ENDPOINT_ENVS if os.environ.get(name)), None)
