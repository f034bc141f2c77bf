"""Objects that never change: written until the outcome is certain, although replies are lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.errors import OutcomeUnknown, StoreUnavailable
from tallystick.runtime import Runtime, system_runtime
from tallystick.store import NotApplied, Outcome, Unknown
from tallystick.store.create_once import TRIES_MAX, create_fresh, create_once
from tallystick.store.memory import MemoryStore

KEY = "ledger/" + "0" * 32 + ".json"
LOST = Unknown(because="timeout")


class Scripted(MemoryStore):
    """A store whose creates follow a script: `applies`, `lost` (applied), `never` (not applied), `away`, `exists`."""

    def __init__(self, script: Iterable[str]) -> None:
        super().__init__("small")
        self.script = iter(script)
        self.tries = 0

    def create(self, key: str, body: bytes | Path) -> Outcome:
        self.tries += 1
        step = next(self.script, "applies")
        if step == "away":
            raise StoreUnavailable("no connection.", hint="wait.")
        if step == "exists":
            return NotApplied(because="exists")
        if step == "never":
            return LOST
        outcome = super().create(key, body)
        return outcome if step == "applies" else LOST


def runtime(pauses: list[float]) -> Runtime:
    return replace(
        system_runtime(),
        sleep=pauses.append,
        monotonic_s=lambda: sum(pauses),
        chance=lambda: 1.0,
    )


@pytest.mark.parametrize(
    ("script", "tries"),
    [
        (["applies"], 1),
        (["lost", "applies"], 2),
        (["never", "applies"], 2),
        (["never", "lost", "applies"], 3),
        (["never", "away", "applies"], 3),
        (["exists", "applies"], 2),
    ],
)
def test_the_bytes_are_written_once_although_replies_are_lost(
    script: list[str], tries: int
) -> None:
    store = Scripted(script)
    assert create_once(store, KEY, b"{}", runtime=runtime([]))
    found = store.get(KEY)
    assert (found is not None and found.body, store.tries) == (b"{}", tries)


@pytest.mark.parametrize("script", [["applies"], ["never", "applies"]])
def test_an_object_with_other_bytes_is_not_changed(script: list[str]) -> None:
    store = Scripted(script)
    MemoryStore.create(store, KEY, b"another writer's")
    assert not create_once(store, KEY, b"{}", runtime=runtime([]))
    found = store.get(KEY)
    assert found is not None
    assert found.body == b"another writer's"


def test_a_first_try_that_was_never_sent_leaves_no_doubt() -> None:
    with pytest.raises(StoreUnavailable, match="no connection"):
        create_once(Scripted(["away"]), KEY, b"{}", runtime=runtime([]))


@pytest.mark.parametrize("answer", ["never", "exists"])
def test_a_write_without_a_certain_answer_is_retried_until_unknown_s(answer: str) -> None:
    pauses: list[float] = []
    with pytest.raises(OutcomeUnknown, match="is unknown after"):
        create_once(Scripted([answer] * 999), KEY, b"{}", runtime=runtime(pauses), unknown_s=9.0)
    assert 9.0 <= sum(pauses) < 11.0


def test_an_upload_has_a_fresh_key_per_try_and_waits_for_a_throttling_store() -> None:
    pauses: list[float] = []
    store, keys = Scripted(["never"] * (TRIES_MAX - 1)), []

    def key_of(uuid: str) -> str:
        keys.append(f"tables/{uuid}")
        return keys[-1]

    key, _ = create_fresh(store, key_of, b"x", runtime=runtime(pauses), what="an upload")
    assert (key, len(set(keys))) == (keys[-1], TRIES_MAX)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2]
