"""Where the tables of a lake lie at one instant: what any reader of Iceberg tables needs, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.lake import Lake
from tallystick.operations.status import read_tables
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSnapshot:
    """All tables of a lake as one root has them: no commit shows in one table and not in another.

    `metadata`: the URI of each table's Iceberg metadata file. These files never change, so what is read through them does
    not either. A table to which nothing was ever committed has no file, and is left out.
    """

    lake: str
    version: int
    metadata: Mapping[str, str]


def read_snapshot(lake: str, *, as_of: int | None = None) -> LakeSnapshot:
    """Say where the tables of the lake root `lake` (`s3://bucket/prefix`) lie; nothing is written.

    `as_of`: as the root of that version had them; the answer's version is then that of the commit which made them so.
    Settings are boto3's own and TALLYSTICK_S3_*. Raises RootVanished, InvalidRequest for a version that was not yet or
    had no rows, InvalidPipeline for a URI that is not allowed, Corrupt, SettingsError, StoreUnavailable.
    """
    found = read_tables(
        Lake(open_store(lake), system_runtime(), proven=True), count=False, as_of=as_of
    )
    return LakeSnapshot(
        lake=found.uri,
        version=found.version,
        metadata={t.name: t.metadata for t in found.tables if t.metadata is not None},
    )
