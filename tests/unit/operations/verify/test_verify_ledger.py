"""Damage to the root, the ledger, records, plans and reports is found, each by its check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.small_lake import TOPIC, SmallLake, days
from tallystick.errors import Corrupt, RootVanished
from tallystick.format import keys
from tallystick.format.canonical import dumps
from tallystick.store import Listed
from unit.operations.verify.proving import Damage, check_damage, prove


def _records(small: SmallLake) -> list[str]:
    return small.keys("commits/")


def _delete(small: SmallLake, key: str) -> None:
    small.store.delete([key])


def _overlap(small: SmallLake) -> None:
    def edit(page: Any) -> None:
        first = page["entries"][0]
        wide = days(1, 3)
        plan = keys.plan(wide.start, wide.end, "f" * 32)
        granted = {"plan": plan, "request": ["small", "x", 0], "generation": 1}
        page["entries"][0] = {
            **first,
            "interval": wide.to_json(),
            "granted": granted,
            "committed": None,
        }

    small.change(small.page(), edit)


def _edit_boundary(small: SmallLake, number: int, offset: int) -> None:
    def edit(page: Any) -> None:
        page["boundaries"][number]["positions"][TOPIC][0][0] = offset

    small.change(small.page(), edit)


def _edit_entry(small: SmallLake, number: int, edit: Callable[[Any], object]) -> None:
    small.change(small.page(), lambda page: edit(page["entries"][number]))


def _edit_totals(small: SmallLake) -> None:
    def edit(entry: Any) -> None:
        entry["committed"]["totals"][0] += 1

    _edit_entry(small, 0, edit)


def _unbalanced_account(small: SmallLake) -> None:
    def edit(record: Any) -> None:
        record["intervals"][0]["accounts"][0]["records"] += 1

    small.change(_records(small)[1], edit)


def _record_and_report_disagree(small: SmallLake) -> None:
    (report,) = small.keys(f"attempts/{days(1, 2).part}/")

    def edit(value: Any) -> None:
        account = value["accounts"][0]
        account["records"], account["dead_letters"] = (
            account["records"] - 1,
            account["dead_letters"] + 1,
        )

    small.change(report, edit)


def _skip_a_commit(small: SmallLake) -> None:
    records = _records(small)
    small.change(records[3], lambda record: record.update(parent=records[1]))


def _forget_entry(small: SmallLake) -> None:
    small.change(small.page(), lambda page: page["entries"].pop(0))


def _set_back(small: SmallLake) -> None:
    """Lose two acknowledged commits: set the root back to the one before them."""
    older = small.store.get(keys.ROOT)
    assert older is not None
    small.run(days(7, 8))
    small.run(days(8, 9))
    small.overwrite(keys.ROOT, older.body)


def _set_back_and_go_on(small: SmallLake) -> None:
    """Set the root back, then commit as many others, so that no record is newer than the root."""
    _set_back(small)
    for number in (9, 10, 11):
        small.run(days(number, number + 1))


DAMAGES = {
    "a page is deleted": Damage(
        do=lambda s: _delete(s, s.page()),
        check="objects",
        rule="I3",
        where="ledger/",
        message="the page cannot be read",
        expected="a readable page",
        found="it does not exist",
    ),
    "a page is of a newer format": Damage(
        do=lambda s: s.change(s.page(), lambda page: page.update(format="tallystick.page/3")),
        check="objects",
        rule="I3",
        where="ledger/",
        message="the page cannot be read",
        expected="a readable page",
        found="written by another version of tallystick",
    ),
    "the newest record is deleted": Damage(
        do=lambda s: _delete(s, _records(s)[-1]),
        check="chain",
        rule="I10",
        where="commits/000000000010-",
        message="the record is named by root.json",
        expected="a record",
        found="it does not exist",
    ),
    "a record in the middle is deleted": Damage(
        do=lambda s: _delete(s, _records(s)[2]),
        check="chain",
        rule="I10",
        where="commits/000000000007-",
        message="the record is named by commits/000000000008-",
        expected="a record",
        found="it does not exist",
    ),
    "a record leaves out its parent": Damage(
        do=_skip_a_commit,
        check="chain",
        rule="I4",
        where="[2013-01-02T00:00:00.000Z",
        message="what commits/000000000010-",
        expected="nothing",
        found="commits/000000000007-",
    ),
    "the chain ends too early": Damage(
        do=lambda s: s.change(_records(s)[3], lambda record: record.update(parent=None)),
        check="chain",
        rule="I4",
        where="[2013-01-01T00:00:00.000Z",
        message="the ledger's commit is not in the chain",
        expected="commits/000000000005-",
        found="no record of this interval",
    ),
    "the root names an older record": Damage(
        do=lambda s: s.change(keys.ROOT, lambda root: root.update(record=_records(s)[-2])),
        check="chain",
        rule="I4",
        where="[2013-01-02T00:00:00.000Z",
        message="the ledger and the newest record of the chain",
        expected="commits/000000000007-",
        found="commits/000000000010-",
    ),
    "the root moves a table back": Damage(
        do=lambda s: s.change(
            keys.ROOT,
            lambda root: root["tables"]["events"].update(
                metadata=next(k for k in s.keys("tables/events/metadata/") if "/00002-" in k)
            ),
        ),
        check="chain",
        rule="I8",
        where="table events",
        message="the metadata in root.json and in commits/000000000010-",
        expected="/00003-",
        found="/00002-",
    ),
    "the root is set back": Damage(
        do=_set_back,
        check="chain",
        rule="I10",
        where="commits/000000000013-",
        message="a root of version 12 existed, and root.json is older",
        expected="version 12 or later",
        found="version 11",
    ),
    "the root is set back, and later commits hide it": Damage(
        do=_set_back_and_go_on,
        check="chain",
        rule="I10",
        where="commits/000000000013-",
        message="a root named its parent, and root.json does not descend from it",
        expected="commits/000000000012-",
        found="not in the chain",
    ),
    "a committed entry is forgotten": Damage(
        do=_forget_entry,
        check="chain",
        rule="I4",
        where="[2013-01-01T00:00:00.000Z",
        message="an acknowledged commit is not in the ledger",
        expected="committed by commits/000000000005-",
        found="no committed entry",
    ),
    "entries overlap": Damage(
        do=_overlap,
        check="tiling",
        rule="I1",
        where="[2013-01-02T00:00:00.000Z",
        message="two entries overlap",
        expected="2013-01-03T00:00:00.000Z",
        found="2013-01-02T00:00:00.000Z",
    ),
    "a boundary is moved": Damage(
        do=lambda s: _edit_boundary(s, 1, 4),
        check="tiling",
        rule="I2",
        where=f"{TOPIC}[0]",
        message="the account's range and its boundaries",
        expected="[0, 4)",
        found="[0, 3)",
    ),
    "a boundary goes back": Damage(
        do=lambda s: _edit_boundary(s, 2, 1),
        check="tiling",
        rule="I2",
        where=f"{TOPIC}[0] at 2013-01-03T00:00:00.000Z",
        message="a boundary goes back",
        expected="at least 3 (the boundary at 2013-01-02",
        found="1",
    ),
    "the index has another time": Damage(
        do=lambda s: s.change(
            keys.ROOT, lambda root: root["pages"][0].__setitem__(1, "2013-01-09T00:00:00.000Z")
        ),
        check="tiling",
        rule="I2",
        where="ledger/",
        message="the reach of the page",
        expected="2013-01-09",
        found="2013-01-07",
    ),
    "a grant changes its owner": Damage(
        do=lambda s: _edit_entry(s, 4, lambda e: e["granted"].update(request=["small", "else", 0])),
        check="tiling",
        rule="I5",
        where="[2013-01-06T00:00:00.000Z",
        message="the granted plan (interval, generation, request)",
        expected="run='else'",
        found="run='scheduled__2013-01-06",
    ),
    "an account does not add up": Damage(
        do=_unbalanced_account,
        check="chain",
        rule="I10",
        where="commits/000000000005-",
        message="the record is named by commits/000000000007-",
        expected="a record",
        found="expected an account of 3 offsets, found 4",
    ),
    "the ledger has other totals": Damage(
        do=_edit_totals,
        check="accounts",
        rule="I7",
        where="[2013-01-01T00:00:00.000Z",
        message="the ledger's totals and the record's",
        expected="records 5, dead_letters 2",
        found="records 6, dead_letters 2",
    ),
    "record and report disagree": Damage(
        do=_record_and_report_disagree,
        check="accounts",
        rule="I7",
        where=f"attempts/{days(1, 2).part}/",
        message="the accounts of the report and the record",
        expected="records=1",
        found="records=2",
    ),
    "a record forgets its report": Damage(
        do=lambda s: s.change(
            _records(s)[1], lambda record: record["intervals"][0].update(report=None)
        ),
        check="accounts",
        rule="I7",
        where="[2013-01-01T00:00:00.000Z",
        message="the report of an interval with offsets",
        expected="a report",
        found="none",
    ),
    "a plan is deleted": Damage(
        do=lambda s: _delete(s, s.keys(f"plans/{days(1, 2).part}/")[0]),
        check="objects",
        rule="I3",
        where=f"plans/{days(1, 2).part}/",
        message="the plan cannot be read",
        expected="a readable plan",
        found="it does not exist",
    ),
    "a granted plan is deleted": Damage(
        do=lambda s: _delete(s, s.keys(f"plans/{days(6, 7).part}/")[0]),
        check="objects",
        rule="I3",
        where=f"plans/{days(6, 7).part}/",
        message="the granted plan cannot be read",
        expected="a readable granted plan",
        found="it does not exist",
    ),
    "a plan is changed": Damage(
        do=lambda s: s.change(
            s.keys(f"plans/{days(1, 2).part}/")[0], lambda plan: plan.update(library="another")
        ),
        check="accounts",
        rule="I5",
        where=f"attempts/{days(1, 2).part}/",
        message="the plan that was staged",
        expected="plans/",
        found="plans/",
    ),
    "a report is deleted": Damage(
        do=lambda s: _delete(s, s.keys(f"attempts/{days(1, 2).part}/")[0]),
        check="objects",
        rule="I3",
        where=f"attempts/{days(1, 2).part}/",
        message="the report cannot be read",
        expected="a readable report",
        found="it does not exist",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_by_its_check(small: SmallLake, name: str) -> None:
    check_damage(small, DAMAGES[name])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "expected canonical JSON"),
        (b"", "expected canonical JSON"),
        (b'{"format":"tallystick.root/9"}', "written by another version of tallystick"),
        (b'{"format":"something"}', "found 'something'"),
    ],
)
def test_a_root_that_cannot_be_read_is_refused(small: SmallLake, body: bytes, message: str) -> None:
    small.overwrite(keys.ROOT, body)
    with pytest.raises(Corrupt, match=message):
        prove(small)


def test_a_lake_without_a_root_is_refused(small: SmallLake) -> None:
    _delete(small, keys.ROOT)
    with pytest.raises(RootVanished, match=r"memory://memory/root\.json does not exist"):
        prove(small)


def _lost_swap(small: SmallLake, *, above: int) -> str:
    """Create the record of a lost swap, `above` versions over that of the root; no root names it. Return its key."""
    (body,) = (small.store.get(key) for key in [small.root()["record"]])
    assert body is not None
    version = small.root()["version"] + above
    key = keys.record(version, "a" * 32)
    parent = small.root()["record"] if above > 0 else json.loads(body.body)["parent"]
    edited = json.loads(body.body) | {"version": version, "parent": parent}
    small.store.create(key, dumps(edited | ({"key": key} if "key" in edited else {})))
    return key


@pytest.mark.parametrize("above", [0, -1])
def test_records_of_lost_swaps_are_no_finding(small: SmallLake, above: int) -> None:
    _lost_swap(small, above=above)
    proof = prove(small)
    assert proof.proven
    assert next(c for c in proof.checks if c.name == "chain").remarks == ()


def test_a_record_of_a_commit_that_may_be_in_progress_is_a_remark(small: SmallLake) -> None:
    key = _lost_swap(small, above=1)
    proof = prove(small)
    assert proof.proven
    (remark,) = next(c for c in proof.checks if c.name == "chain").remarks
    assert remark.startswith(f"{key}: its version is one above that of root.json (11)")


def test_commits_during_verify_are_no_damage(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = small.store.list

    def slow_listing(prefix: str) -> Iterator[Listed]:
        if prefix == "":  # the root was read, the listing has not begun
            monkeypatch.setattr(small.store, "list", listing)
            small.run(days(7, 8))
            small.run(days(8, 9))
        return listing(prefix)

    monkeypatch.setattr(small.store, "list", slow_listing)
    proof = prove(small)
    assert proof.version == 11
    assert small.root()["version"] == 13
    assert proof.proven, [str(f) for c in proof.checks for f in c.findings]
