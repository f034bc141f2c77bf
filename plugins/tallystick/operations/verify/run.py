"""The order of a verification: read the root, list, then each check over what was read."""

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
from tallystick.operations.verify.proof import CHECKS, Checks, Demands, Proof, Watch
from tallystick.operations.verify.rows import RowsCheck, check_demands
from tallystick.operations.verify.tables import check_tables, expect_files, read_tables
from tallystick.operations.verify.tiling import Tiles, check_grant, check_ranges, read_tiles

JUDGED_MAX = 3


def verify(
    lake: Lake, *, deep: bool = False, demands: Demands | None = None, watch: Watch | None = None
) -> Proof:
    """Prove that the lake holds what its ledger says, or say where it does not.

    Judges the one root that it reads first; reads only. Damage is a finding, so that one run tells all of it. The root
    is read again at the end only where a record is newer than it, or something was found. Raises Corrupt (the root itself
    cannot be read), RootVanished, InvalidRequest (`demands` of a table that has no lineage), and what the store raises.
    """
    for _ in range(JUDGED_MAX):
        snapshot = lake.load_existing()
        found = _judge(lake, snapshot, deep, demands or Demands(), watch or _silent)
        # C13: what only a root of a moment ago reached may be collected by now. Damage is there at the next look too.
        if found.proven or lake.load_existing().etag == snapshot.etag:
            break
    return found


def _judge(lake: Lake, snapshot: Snapshot, deep: bool, demands: Demands, watch: Watch) -> Proof:
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
    records_read = tiles.whole
    for case in evidence.cases(tiles.entries):
        records_read = records_read and case.record is not None
        expect_files(evidence, held, case)
        check_ranges(checks["tiling"], tiles, case)
        check_interval(evidence, case, held)
        if rows is not None:
            rows.check_interval(case)
    _check_grants(evidence, tiles)
    check_set_back(evidence, chain)
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
