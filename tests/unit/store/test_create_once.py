"""Objects that never change: written until the outcome is certain, whatever reply is lost."""

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
    """Each create does and answers as the script has it: `lands`, `lost` (it landed), `never` (it did not), `away`."""

    def __init__(self, script: Iterable[str]) -> None:
        super().__init__("small")
        self.script = iter(script)
        self.tries = 0

    def create(self, key: str, body: bytes | Path) -> Outcome:
        self.tries += 1
        step = next(self.script, "lands")
        if step == "away":
            raise StoreUnavailable("no connection.", hint="wait.")
        if step == "exists":
            return NotApplied(because="exists")
        if step == "never":
            return LOST
        outcome = super().create(key, body)
        return outcome if step == "lands" else LOST


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
        (["lands"], 1),
        (["lost", "lands"], 2),
        (["never", "lands"], 2),
        (["never", "lost", "lands"], 3),
        (["never", "away", "lands"], 3),
        (["exists", "lands"], 2),
    ],
)
def test_the_bytes_are_there_once_whatever_reply_is_lost(script: list[str], tries: int) -> None:
    store = Scripted(script)
    assert create_once(store, KEY, b"{}", runtime=runtime([]))
    found = store.get(KEY)
    assert (found is not None and found.body, store.tries) == (b"{}", tries)


@pytest.mark.parametrize("script", [["lands"], ["never", "lands"]])
def test_other_bytes_are_left_as_they_are(script: list[str]) -> None:
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
def test_a_store_without_a_certain_answer_is_asked_as_long_as_it_was_given(answer: str) -> None:
    pauses: list[float] = []
    with pytest.raises(OutcomeUnknown, match="has no certain outcome after"):
        create_once(Scripted([answer] * 999), KEY, b"{}", runtime=runtime(pauses), unknown_s=9.0)
    assert 9.0 <= sum(pauses) < 11.0


def test_an_upload_has_a_fresh_key_per_try_and_waits_seconds_for_a_store_that_throttles() -> None:
    pauses: list[float] = []
    store, keys = Scripted(["never"] * (TRIES_MAX - 1)), []

    def key_of(uuid: str) -> str:
        keys.append(f"tables/{uuid}")
        return keys[-1]

    key, _ = create_fresh(store, key_of, b"x", runtime=runtime(pauses), what="an upload")
    assert (key, len(set(keys))) == (keys[-1], TRIES_MAX)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2]
