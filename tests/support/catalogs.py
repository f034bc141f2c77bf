"""Catalogs in memory for registrations, which may die at any step, and lakes that are registered in them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from support.fake_output import Killed
from support.small_lake import SmallLake, pipeline
from tallystick.errors import OutputBusy
from tallystick.operations.publish import NotPublished
from tallystick.operations.register import Registered, register
from tallystick.outputs.registrations import port
from tallystick.outputs.registrations.port import Pointer
from tallystick.pipeline import DeclaredRegistration, Pipeline
from tallystick.protocol.registering import Advance, Create

COMPANY = "company"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCatalog:
    """The declaration of a catalog in memory."""

    name: str = COMPANY
    target: str = "memory:company"


@dataclass
class FakeCatalog:
    """The pointers of a catalog, and every value that each had. `checked`: a change has a condition."""

    pointers: dict[str, str] = field(default_factory=dict)
    history: dict[str, list[str]] = field(default_factory=dict)
    checked: bool = True

    def set(self, table: str, uri: str, *, expected: str | None) -> None:
        """Set one pointer, if it is as expected."""
        if self.checked and self.pointers.get(table) != expected:
            raise OutputBusy(f"table {table} was changed.", hint="try again.")
        self.pointers[table] = uri
        self.history.setdefault(table, []).append(uri)

    def numbers(self, table: str) -> list[int]:
        """Return the numbers of the metadata that a table's pointer had, in order."""
        return [int(uri.rsplit("/", 1)[-1][:5]) for uri in self.history.get(table, [])]


class FakeRegistrar:
    """A registrar of one catalog in memory. `step` is called before and after each effect; it may raise Killed."""

    def __init__(self, catalog: FakeCatalog, step: Callable[[str], None] = lambda _: None) -> None:
        self.catalog, self.step = catalog, step
        self.closed = 0

    def register(self, pointers: Sequence[Pointer]) -> Mapping[str, str]:
        """Set the pointers, table by table."""
        self.step("read")
        found = dict(self.catalog.pointers)
        decided = port.steps(pointers, found.get, registration=COMPANY, where="memory")
        later = port.ahead(decided, found.get)
        for pointer in () if later else pointers:
            if isinstance(decided[pointer.table], Create | Advance):
                self.step(f"before {pointer.table}")
                expected = found.get(pointer.table)
                self.catalog.set(pointer.table, pointer.uri, expected=expected)
                self.step(f"after {pointer.table}")
        self.step("end")
        return later

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


def with_registrations(
    declared: tuple[DeclaredRegistration, ...], warehouse: str, **more: Any
) -> Pipeline:
    """Return the small pipeline with registrations."""
    return replace(pipeline(warehouse), registrations=declared, **more)


def registered_lake(*declared: DeclaredRegistration, **how: Any) -> SmallLake:
    """Return a small lake whose pipeline has registrations, by default one in a catalog in memory."""
    wanted = declared or (DeclaredCatalog(),)
    return SmallLake(declared=functools.partial(with_registrations, wanted), **how)


def register_all(
    small: SmallLake, registrar: Any, *, name: str = COMPANY
) -> tuple[list[Registered], tuple[NotPublished, ...]]:
    """Register what is pending; return what was registered, and what failed."""
    done: list[Registered] = []
    targets = small.declared(small.store.uri).targets
    failed = register(small.lake, {name: lambda: registrar}, targets=targets, watch=done.append)
    return done, failed


def wanted_pointers(small: SmallLake) -> dict[str, str]:
    """Return the pointers that a catalog must have: the metadata of the root's tables."""
    root = small.lake.load_existing().root
    return {
        name: small.lake.where(table.metadata)
        for name, table in root.tables.items()
        if table.metadata is not None
    }


def die_at(step: str) -> Callable[[str], None]:
    """Return a step that dies once at the step of that name."""
    left = [step]

    def check(name: str) -> None:
        if left and name == left[0]:
            left.clear()
            raise Killed

    return check
