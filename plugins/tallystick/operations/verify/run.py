"""Runs a verification: reads the root, lists the lake, then runs each check."""

from __future__ import annotations

from tallystick.lake import Lake, Snapshot
from tallystick.operations.verify.chain import (
    check_chain,
    check_meanings,
    check_set_back,
    read_chain,
)
from tallystick.operations.verify.evidence import Evidence
from tallystick.operations.verify.intervals import check_interval
from tallystick.operations.verify.places import read_places
from tallystick.operations.verify.proof import CHECKS, Checks, Demands, Proof, Watch
from tallystick.operations.verify.rows import RowsCheck, check_demands
from tallystick.operations.verify.tables import (
    check_deleted,
    check_tables,
    expect_files,
    expect_shared_files,
    read_tables,
)
from tallystick.operations.verify.tiling import Tiles, check_grant, check_ranges, read_tiles

CHECKS_MAX = 3


def verify(
    lake: Lake, *, deep: bool = False, demands: Demands | None = None, watch: Watch | None = None
) -> Proof:
    """Verify that the lake contains what its ledger records, and return every difference as a finding.

    Checks against the root that is read first; writes nothing. Damage is a finding and not an error, so that one run
    reports all of it. The root is read again only if a record is newer than it, or if there are findings. If the root
    has changed since a run with findings began, the checks run again, up to CHECKS_MAX times in total. Raises Corrupt
    if the root cannot be read, RootVanished, InvalidRequest if `demands` names a table without lineage, and the errors
    of the store.
    """
    for _ in range(CHECKS_MAX):
        snapshot = lake.load_existing()
        found = _check_snapshot(lake, snapshot, deep, demands or Demands(), watch or _silent)
        # C13: gc may have deleted objects that only this root reached, if it has been replaced. The next run finds real
        # damage again.
        if found.proven or lake.load_existing().etag == snapshot.etag:
            break
    return found


def _check_snapshot(
    lake: Lake, snapshot: Snapshot, deep: bool, demands: Demands, watch: Watch
) -> Proof:
    checks = Checks()
    evidence = Evidence(lake, snapshot, checks, watch)
    rows = RowsCheck(evidence, demands) if deep else None
    if rows is not None:
        check_demands(evidence, rows.demands)
    checks["objects"].count("root")
    tiles = read_tiles(evidence)
    chain = read_chain(evidence)
    if tiles.whole:
        check_chain(evidence, chain, tiles.entries)
    check_meanings(evidence, chain)
    held = read_tables(evidence)
    places = read_places(evidence, tiles.entries)
    records_read = tiles.whole and places.whole
    if rows is not None:
        rows.places = places
    for case in evidence.cases(tiles.entries):
        records_read = records_read and case.record is not None
        expect_files(evidence, held, case, places)
        check_ranges(checks["tiling"], tiles, case)
        check_interval(evidence, case, held, places)
        if rows is not None:
            rows.check_interval(case)
    _check_grants(evidence, tiles)
    check_set_back(evidence, chain)
    expect_shared_files(evidence, held, places)
    if places.whole:
        check_deleted(evidence, held, places, deep=deep)
    check_tables(evidence, held, complete=records_read)
    if rows is not None:
        checks["rows"].remarks.extend(rows.remarks())
    names = [name for name in CHECKS if name != "rows" or deep]
    return Proof(
        uri=lake.store.uri,
        pipeline=evidence.root.pipeline,
        version=evidence.root.version,
        root_id=evidence.root.id,
        deep=deep,
        checks=tuple(checks[name].done() for name in names),
    )


def _check_grants(evidence: Evidence, tiles: Tiles) -> None:
    for entry in tiles.entries:
        if entry.granted is None:
            continue
        plan = evidence.take(evidence.plan(entry.granted.plan), entry.granted.plan, "granted plan")
        if plan is not None:
            check_grant(evidence.checks["tiling"], tiles, entry, plan)


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
