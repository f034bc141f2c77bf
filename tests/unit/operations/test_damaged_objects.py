"""Damaged, newer, misplaced or missing objects of the lake: a run refuses them and never repairs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from support.fakes import stage
from support.small_lake import SmallLake, days, pipeline
from tallystick.errors import (
    Corrupt,
    IdentityChanged,
    InvalidPipeline,
    RootVanished,
    SchemaChanged,
    TallystickError,
)
from tallystick.format import keys
from tallystick.lake import Lake, Snapshot, Update
from tallystick.operations.commit import commit
from tallystick.operations.stage import still_granted
from tallystick.pipeline import pipeline_from_spec
from tallystick.store import NotApplied, Outcome

DAY_2 = days(2, 3)


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A lake whose first day is committed and whose second is planned and staged."""

    small: SmallLake
    plan: str
    report: str

    def commit(self) -> object:
        return commit(
            self.small.lake, self.small.tables, plan_key=self.plan, report_key=self.report
        )

    def reopened(self) -> SmallLake:
        """Return the same lake as in another process, which has read nothing of it."""
        return SmallLake(store=self.small.store, log=self.small.log, runtime=self.small.runtime)


@pytest.fixture
def staged() -> Staged:
    small = SmallLake()
    small.run(days(1, 2))
    (planned,) = small.plan(DAY_2).intervals
    report = stage(small.lake, small.log, planned.plan)
    return Staged(small=small, plan=planned.plan, report=report)


READERS: dict[str, tuple[Callable[[Staged], str], Callable[[Staged], object]]] = {
    "page": (lambda s: s.small.page(), lambda s: s.reopened().plan(days(3, 4))),
    "plan, by the stage": (lambda s: s.plan, lambda s: still_granted(s.small.lake, s.plan)),
    "plan, by the commit": (lambda s: s.plan, lambda s: s.commit()),
    "report": (lambda s: s.report, lambda s: s.commit()),
}


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (b"", "expected canonical JSON"),
        (b"{", "expected canonical JSON"),
        (b"<html>", "expected canonical JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"format":"tallystick.newer/9"}', "tallystick.newer/9"),
        (lambda value: value.update(surprise=1), "unknown field 'surprise'"),
        (
            lambda value: value.update(format=value["format"][:-1] + "9"),
            "another version of tallystick",
        ),
    ],
    ids=["empty", "truncated", "a web page", "a list", "another format", "unknown field", "newer"],
)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_or_newer_object_is_refused_and_left_unchanged(
    staged: Staged, name: str, damage: Any, problem: str
) -> None:
    key_of, read = READERS[name]
    key = key_of(staged)
    if isinstance(damage, bytes):
        staged.small.overwrite(key, damage)
    else:
        staged.small.change(key, damage)
    before = {k: staged.small.store.get(k) for k in staged.small.keys("")}
    with pytest.raises(Corrupt) as caught:
        read(staged)
    assert f"{staged.small.store.uri}/{key}" in caught.value.message
    assert problem in caught.value.message
    assert "restore it from a bucket version" in caught.value.hint
    assert {k: staged.small.store.get(k) for k in staged.small.keys("")} == before


def test_a_copied_object_is_detected_by_the_key_that_it_contains(staged: Staged) -> None:
    other = staged.plan.replace(keys.plan_parts(staged.plan)[1], "f" * 32)
    found = staged.small.store.get(staged.plan)
    assert found is not None
    staged.small.store.create(other, found.body)
    with pytest.raises(
        Corrupt, match=f"{other}: expected its own key inside, found {staged.plan}.*remove the copy"
    ):
        staged.small.lake.plan(other)


def test_a_fresh_key_with_other_content_is_refused(staged: Staged) -> None:
    key = keys.plan(DAY_2.start, DAY_2.end, "f" * 32)
    staged.small.store.create(key, b"theirs")
    with pytest.raises(
        Corrupt,
        match=f"{key}: expected a new key, found an object of another writer.*no process copies objects",
    ):
        staged.small.lake.put_new(key, b"ours")
    found = staged.small.store.get(key)
    assert found is not None
    assert found.body == b"theirs"


def test_a_root_deleted_between_read_and_swap_is_not_created_again(staged: Staged) -> None:
    small = staged.small

    def step(snapshot: Snapshot) -> Update[None]:
        small.store.delete([keys.ROOT])
        ledger = snapshot.ledger(DAY_2.start, DAY_2.end)
        return Update(
            tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=ledger, value=None
        )

    with pytest.raises(RootVanished, match=r"root\.json existed and is gone.*bucket version"):
        small.lake.swap(step)
    assert small.store.get(keys.ROOT) is None


def test_a_swap_that_finds_the_root_missing_raises_root_vanished(staged: Staged) -> None:
    small = staged.small

    class Missing:
        def __getattr__(self, name: str) -> Any:
            return getattr(small.store, name)

        def replace(self, *_: object, **__: object) -> Outcome:
            return NotApplied(because="missing")

    store: Any = Missing()
    lake = Lake(store, small.runtime, proven=True)
    with pytest.raises(RootVanished, match=r"root\.json existed and is gone"):
        commit(lake, small.tables, plan_key=staged.plan, report_key=staged.report)


@pytest.mark.parametrize(
    ("edit", "kind", "parts"),
    [
        (
            lambda root: root["topics"]["events"].update(topic_id="another"),
            IdentityChanged,
            ("expected id topic-id-1 in", "found id another in"),
        ),
        (
            lambda root: root["topics"]["events"].update(cluster_id="elsewhere"),
            IdentityChanged,
            ("fake-cluster", "elsewhere"),
        ),
        (
            lambda root: root["tables"]["events"].update(uuid="e" * 32),
            IdentityChanged,
            ("e" * 32,),
        ),
        (
            lambda root: root["tables"]["events"]["columns"][0].update(type="int"),
            SchemaChanged,
            ("table events", "long", "int"),
        ),
    ],
    ids=["topic", "cluster", "table", "column"],
)
def test_a_commit_into_a_lake_with_other_identities_or_columns_names_both(
    staged: Staged, edit: Any, kind: type[TallystickError], parts: tuple[str, ...]
) -> None:
    staged.small.change(keys.ROOT, edit)
    before = staged.small.store.get(keys.ROOT)
    with pytest.raises(kind) as caught:
        staged.commit()
    for part in parts:
        assert part in caught.value.message
    assert "clear this run's plan task" in caught.value.hint
    assert staged.small.store.get(keys.ROOT) == before


def test_a_plan_of_a_newer_version_names_both_formats() -> None:
    spec = pipeline("memory://lake").to_spec() | {"format": "tallystick.pipeline/9"}
    with pytest.raises(InvalidPipeline) as caught:
        pipeline_from_spec(spec, where="plans/x spec")
    assert "found 'tallystick.pipeline/9'" in str(caught.value)
    assert "clear task `plan`" in caught.value.hint
