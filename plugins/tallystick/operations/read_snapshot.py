"""Locates the tables of a lake in one snapshot, for any reader of Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tallystick.lake import Lake
from tallystick.operations.status import read_tables
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSnapshot:
    """All tables of a lake as one root has them: each commit is visible in all tables or in none.

    `metadata`: the URI of each table's Iceberg metadata file. These files never change, so repeated reads return the same
    rows. A table without any commit has no metadata file and is left out.
    """

    lake: str
    version: int
    metadata: Mapping[str, str]


def read_snapshot(lake: str, *, as_of: int | datetime | None = None) -> LakeSnapshot:
    """Return the metadata URIs of the tables of the lake with the URI `lake` (`s3://bucket/prefix`); nothing is written.

    `as_of`: a version of the root, or an aware datetime. The result is the last commit at or before it, with the version
    of that commit. If it is None, the current root is read. To repeat a read at an instant, use the version of its
    result: a later commit, by a machine whose clock is behind, may have an earlier time. Each commit after the one that
    is found costs one request to the store.

    Settings are those of boto3 and TALLYSTICK_S3_*. Raises NothingPlanned if no run has planned anything in this lake
    yet, RootVanished if its root is gone. Raises InvalidRequest if the version does not exist yet, if nothing was
    committed at or before `as_of`, if gc has collected the version, and if a datetime has no offset. Raises
    InvalidPipeline if the URI is not allowed, and Corrupt, SettingsError, StoreUnavailable.
    """
    found = read_tables(
        Lake(open_store(lake), system_runtime(), proven=True, begun=False), count=False, as_of=as_of
    )
    return LakeSnapshot(
        lake=found.uri,
        version=found.version,
        metadata={t.name: t.metadata for t in found.tables if t.metadata is not None},
    )
