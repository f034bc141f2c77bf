"""Dropped guards of publishing: each switches off one rule, and the explorer with an output must detect it.

A mutant is a context manager that patches tallystick's own code while it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from support.fake_output import FakeOutput
from tallystick.format.outputs import OutputSlot
from tallystick.operations import publish as publish_module
from tallystick.operations.gc import marking
from tallystick.outputs.port import NoRows
from tallystick.protocol import publishing as slots

Mutant = Callable[[], AbstractContextManager[Any]]


def _without_own_checks() -> AbstractContextManager[Any]:
    # tallystick's own check before each swap would stop most mutants. The receiver's check must detect them without it.
    return patch("tallystick.lake.lake.check_swap", lambda *_: None)


@contextmanager
def in_progress_is_not_recorded() -> Iterator[None]:
    """Send rows before the ledger records the publication as in progress."""
    real = publish_module._note

    def silent(lake: Any, interval: Any, name: str, change: Any, **more: Any) -> Any:
        slot = OutputSlot(wanted="0" * 32)
        if change(slot) is None and change(replace(slot, in_progress="1" * 32)) is None:
            # Neither beginning nor finishing changes a foreign slot: distinguish them by their effect on their own slot.
            entry = publish_module._entry(lake, interval)
            own = entry.outputs[name] if entry else slot
            now = change(own)
            if now is not None and now.in_progress is not None:
                return "set"
        return real(lake, interval, name, _finish_in_any_case(change), **more)

    with _without_own_checks(), patch.object(publish_module, "_note", silent):
        yield


def _finish_in_any_case(change: Any) -> Any:
    def finish(slot: OutputSlot) -> OutputSlot | None:
        return change(slot) or change(replace(slot, in_progress=slot.wanted))

    return finish


@contextmanager
def refusal_is_ignored() -> Iterator[None]:
    """Send rows although they were replaced since they were prepared."""
    real = publish_module._note

    def always_set(*of: Any, **more: Any) -> Any:
        return "set" if (noted := real(*of, **more)) == "refused" else noted

    with _without_own_checks(), patch.object(publish_module, "_note", always_set):
        yield


@contextmanager
def two_intervals_are_in_progress() -> Iterator[None]:
    """Begin an interval while another one is partly sent."""
    real = publish_module._note

    def concurrently(*of: Any, alone: Any = None, **more: Any) -> Any:
        del alone
        return real(*of, **more)

    with patch.object(publish_module, "_note", concurrently):
        yield


@contextmanager
def in_progress_is_cleared_by_a_commit() -> Iterator[None]:
    """Replace rows that are partly sent, and clear `in_progress`."""
    real = slots.with_plan

    def forgetful(slot: Any, plan: str, *, nothing: bool) -> OutputSlot:
        return replace(real(slot, plan, nothing=nothing), in_progress=None)

    with _without_own_checks(), patch.object(slots, "with_plan", forgetful):
        yield


@contextmanager
def published_rows_are_forgotten() -> Iterator[None]:
    """Send a replacement as if nothing had been published before."""
    real = publish_module.publication_of

    def forgetful(*of: Any, **more: Any) -> Any:
        return replace(real(*of, **more), rows_before=NoRows(), instead_of=None)

    with patch.object(publish_module, "publication_of", forgetful):
        yield


@contextmanager
def newest_first() -> Iterator[None]:
    """Publish the wanted plan, even if another one is in progress."""
    real = slots.next_step

    def hasty(slot: OutputSlot) -> slots.Step:
        return (
            real(replace(slot, in_progress=None)) if slot.in_progress != slot.wanted else real(slot)
        )

    def begin(slot: OutputSlot, plan: str) -> OutputSlot | None:
        return replace(slot, in_progress=plan) if plan == slot.wanted else None

    with (
        _without_own_checks(),
        patch.object(slots, "next_step", hasty),
        patch.object(slots, "in_progress", begin),
    ):
        yield


@contextmanager
def past_a_partly_sent_interval() -> Iterator[None]:
    """Publish another interval while one is partly sent, which overwrites its position."""
    with two_intervals_are_in_progress(), patch.object(publish_module, "_begun", lambda *_: False):
        yield


@contextmanager
def no_publisher_is_fenced() -> Iterator[None]:
    """Let two publishers send at the same time."""
    with patch.object(FakeOutput, "_check_epoch", lambda _: None):
        yield


@contextmanager
def gc_ignores_outputs() -> Iterator[None]:
    """Delete in gc what no reader needs, also if an output needs it."""
    with patch.object(marking.Marking, "_unpublished", lambda *_: []):
        yield


MUTANTS: dict[str, Mutant] = {
    "in progress is not recorded": in_progress_is_not_recorded,
    "in progress is cleared by a commit": in_progress_is_cleared_by_a_commit,
    "gc ignores outputs": gc_ignores_outputs,
    "newest first": newest_first,
    "no publisher is fenced": no_publisher_is_fenced,
    "two intervals are in progress": two_intervals_are_in_progress,
    "past a partly sent interval": past_a_partly_sent_interval,
    "refusal is ignored": refusal_is_ignored,
    "published rows are forgotten": published_rows_are_forgotten,
}
