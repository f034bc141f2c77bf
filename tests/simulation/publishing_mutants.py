"""Dropped guards of publishing: each switches one rule off, and the explorer with an output must notice.

A mutant is a context manager that patches tallystick's own code for as long as it is open.
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


def _quiet_invariants() -> AbstractContextManager[Any]:
    # Our own check before each swap would stop most mutants; the judge of the wire must catch them without it.
    return patch("tallystick.lake.lake.check_swap", lambda *_: None)


@contextmanager
def begun_is_not_noted() -> Iterator[None]:
    """Rows are sent before the ledger says that they may be out there."""
    real = publish_module._note

    def silent(lake: Any, interval: Any, name: str, change: Any, **more: Any) -> Any:
        slot = OutputSlot(wanted="0" * 32)
        if change(slot) is None and change(replace(slot, in_progress="1" * 32)) is None:
            # Neither begun nor finished fits a strange slot: tell them apart by what they do to their own.
            entry = publish_module._entry(lake, interval)
            own = entry.outputs[name] if entry else slot
            now = change(own)
            if now is not None and now.in_progress is not None:
                return "set"
        return real(lake, interval, name, _finish_anyhow(change), **more)

    with _quiet_invariants(), patch.object(publish_module, "_note", silent):
        yield


def _finish_anyhow(change: Any) -> Any:
    def finish(slot: OutputSlot) -> OutputSlot | None:
        return change(slot) or change(replace(slot, in_progress=slot.wanted))

    return finish


@contextmanager
def refusal_is_ignored() -> Iterator[None]:
    """What was replaced since it was prepared is sent all the same."""
    real = publish_module._note

    def bold(*of: Any, **more: Any) -> Any:
        return "set" if (noted := real(*of, **more)) == "refused" else noted

    with _quiet_invariants(), patch.object(publish_module, "_note", bold):
        yield


@contextmanager
def others_are_begun_beside_it() -> Iterator[None]:
    """An interval is begun while another one is half out."""
    real = publish_module._note

    def beside(*of: Any, alone: Any = None, **more: Any) -> Any:
        del alone
        return real(*of, **more)

    with patch.object(publish_module, "_note", beside):
        yield


@contextmanager
def begun_is_forgotten_by_a_commit() -> Iterator[None]:
    """A replacement takes the place of what is half out."""
    real = slots.with_plan

    def forgetful(slot: Any, plan: str, *, nothing: bool) -> OutputSlot:
        return replace(real(slot, plan, nothing=nothing), in_progress=None)

    with _quiet_invariants(), patch.object(slots, "with_plan", forgetful):
        yield


@contextmanager
def what_is_there_is_forgotten() -> Iterator[None]:
    """A replacement is sent as if nothing had been sent before."""
    real = publish_module.publication_of

    def forgetful(*of: Any, **more: Any) -> Any:
        return replace(real(*of, **more), rows_before=NoRows(), instead_of=None)

    with patch.object(publish_module, "publication_of", forgetful):
        yield


@contextmanager
def newest_first() -> Iterator[None]:
    """What is wanted is published, whatever was begun before."""
    real = slots.next_step

    def hasty(slot: OutputSlot) -> slots.Step:
        return (
            real(replace(slot, in_progress=None)) if slot.in_progress != slot.wanted else real(slot)
        )

    def begin(slot: OutputSlot, plan: str) -> OutputSlot | None:
        return replace(slot, in_progress=plan) if plan == slot.wanted else None

    with (
        _quiet_invariants(),
        patch.object(slots, "next_step", hasty),
        patch.object(slots, "in_progress", begin),
    ):
        yield


@contextmanager
def past_what_is_half_out() -> Iterator[None]:
    """Another interval is published while one is half out, and overwrites where it stands."""
    with others_are_begun_beside_it(), patch.object(publish_module, "_begun", lambda *_: False):
        yield


@contextmanager
def nobody_is_fenced() -> Iterator[None]:
    """Two publishers send at once."""
    with patch.object(FakeOutput, "_own", lambda _: None):
        yield


@contextmanager
def gc_ignores_outputs() -> Iterator[None]:
    """Garbage is what no reader needs."""
    with patch.object(marking.Marking, "_unpublished", lambda *_: []):
        yield


MUTANTS: dict[str, Mutant] = {
    "begun is not noted": begun_is_not_noted,
    "begun is forgotten by a commit": begun_is_forgotten_by_a_commit,
    "gc ignores outputs": gc_ignores_outputs,
    "newest first": newest_first,
    "nobody is fenced": nobody_is_fenced,
    "others are begun beside it": others_are_begun_beside_it,
    "past what is half out": past_what_is_half_out,
    "refusal is ignored": refusal_is_ignored,
    "what is there is forgotten": what_is_there_is_forgotten,
}
