"""Dropped guards of registrations: each switches off one rule, and the tests of registrations must detect it.

A mutant is a context manager that patches tallystick's own code while it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from support.catalogs import FakeCatalog
from tallystick.operations import register as register_module
from tallystick.operations.gc import marking
from tallystick.outputs.registrations import port
from tallystick.protocol import registering
from tallystick.protocol.registering import Advance, Ahead, Foreign, PointerStep

Mutant = Callable[[], AbstractContextManager[Any]]


def _without_own_checks() -> AbstractContextManager[Any]:
    # tallystick's own check before each swap would stop some mutants. The tests must detect them without it.
    return patch("tallystick.lake.lake.check_swap", lambda *_: None)


@contextmanager
def _step(change: Callable[[str | None, PointerStep], PointerStep]) -> Iterator[None]:
    real = registering.pointer_step

    def changed(found: str | None, wanted: str) -> PointerStep:
        return change(found, real(found, wanted))

    with (
        _without_own_checks(),
        patch.object(port, "pointer_step", changed),
        patch.object(register_module, "pointer_step", changed),
    ):
        yield


def a_later_pointer_is_set_back() -> AbstractContextManager[Any]:
    """Overwrite a pointer that another publisher has set to a later version."""
    return _step(
        lambda found, step: Advance(expected=found or "") if isinstance(step, Ahead) else step
    )


def a_foreign_table_is_overwritten() -> AbstractContextManager[Any]:
    """Overwrite the pointer of another lake's table."""
    return _step(
        lambda found, step: Advance(expected=found or "") if isinstance(step, Foreign) else step
    )


def a_change_has_no_condition() -> AbstractContextManager[Any]:
    """Set a pointer without the condition that it is as it was read."""
    real = FakeCatalog.set

    def unconditional(catalog: FakeCatalog, table: str, uri: str, *, expected: str | None) -> None:
        del expected
        real(catalog, table, uri, expected=catalog.pointers.get(table))

    return patch.object(FakeCatalog, "set", unconditional)


@contextmanager
def a_late_publisher_is_satisfied() -> Iterator[None]:
    """End after a version was registered, even if the root has a later one that another publisher has registered."""
    real = register_module._wanted

    def forgetful(lake: Any, name: str, done: Any, snapshot: Any) -> Any:
        del done
        return real(lake, name, None, snapshot)

    with patch.object(register_module, "_wanted", forgetful):
        yield


@contextmanager
def a_lake_that_was_set_back_is_not_noticed() -> Iterator[None]:
    """Take a pointer that is later than the root for the work of another publisher."""
    with patch.object(register_module, "_refuse_set_back", lambda *_: None):
        yield


def the_registered_version_goes_back() -> AbstractContextManager[Any]:
    """Record a version although a later one is registered."""

    @contextmanager
    def mutant() -> Iterator[None]:
        with (
            _without_own_checks(),
            patch.object(registering, "_is_later", lambda record, other: record != other),
        ):
            yield

    return mutant()


def gc_forgets_the_pointers() -> AbstractContextManager[Any]:
    """Collect versions to which pointers are set."""
    return patch.object(marking, "readable_from", lambda _: None)


MUTANTS: tuple[Mutant, ...] = (
    a_later_pointer_is_set_back,
    a_foreign_table_is_overwritten,
    a_change_has_no_condition,
    a_late_publisher_is_satisfied,
    a_lake_that_was_set_back_is_not_noticed,
    the_registered_version_goes_back,
    gc_forgets_the_pointers,
)
