"""`read_snapshot`: the metadata file of each table, as one root names them."""

from __future__ import annotations

import json
import re

import pytest

from support.small_lake import SmallLake, days, good_lake
from tallystick.errors import InvalidPipeline, InvalidRequest, NothingPlanned, RootVanished
from tallystick.format import keys
from tallystick.operations.read_snapshot import read_snapshot
from tallystick.store.open import open_store


@pytest.fixture
def small(request: pytest.FixtureRequest) -> SmallLake:
    return good_lake(open_store(f"memory://{re.sub('[^a-z0-9]', '-', request.node.name)}"))


def named_by(body: bytes, lake: str) -> dict[str, str]:
    """Return the metadata files that a root or a record names, read as plain JSON."""
    tables = json.loads(body)["tables"]
    return {name: f"{lake}/{table['metadata']}" for name, table in tables.items()}


def test_the_snapshot_is_what_the_root_names(small: SmallLake) -> None:
    lake = small.store.uri
    found = small.store.get(keys.ROOT)
    assert found is not None
    snapshot = read_snapshot(lake)
    assert (snapshot.lake, snapshot.version) == (lake, json.loads(found.body)["version"])
    assert snapshot.metadata == named_by(found.body, lake)
    assert set(snapshot.metadata) == {"events", "per_kind", "dead_letters"}


def test_an_older_snapshot_is_what_the_root_of_that_version_named(small: SmallLake) -> None:
    lake = small.store.uri
    then = read_snapshot(lake)
    small.run(days(4, 5))
    assert read_snapshot(lake).metadata != then.metadata
    again = read_snapshot(lake, as_of=then.version)
    assert again.metadata == then.metadata
    # Version 11 granted something and committed nothing: its tables are those of the commit before it.
    assert (then.version, again.version) == (11, 10)


def test_a_table_without_any_commit_is_left_out() -> None:
    small = SmallLake(store=open_store("memory://snapshot-before-rows"))
    small.plan(days(1, 2))
    assert read_snapshot(small.store.uri).metadata == {}


@pytest.mark.parametrize("version", [0, 1, 99])
def test_a_version_without_rows_is_refused(small: SmallLake, version: int) -> None:
    with pytest.raises(InvalidRequest, match=f"version {version}"):
        read_snapshot(small.store.uri, as_of=version)


def test_a_lake_without_any_run_is_refused_with_its_uri() -> None:
    with pytest.raises(NothingPlanned, match="planned at memory://nothing-here yet"):
        read_snapshot("memory://nothing-here")
    with pytest.raises(InvalidPipeline, match="file:///tmp"):
        read_snapshot("file:///tmp")


def test_a_lake_whose_root_is_gone_has_vanished(small: SmallLake) -> None:
    small.store.delete([keys.ROOT])
    with pytest.raises(
        RootVanished, match=re.escape(f"{small.store.uri}/root.json does not exist")
    ):
        read_snapshot(small.store.uri)
