"""The port of registrations: what a registrar gets, and what it does to a catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.errors import OutputRefused
from tallystick.format.columns import TableColumn
from tallystick.protocol.registering import Ahead, Foreign, PointerStep, pointer_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The pointer that a table must have in a catalog: the URI of its metadata. `columns` are those of that metadata."""

    table: str
    uri: str
    columns: tuple[TableColumn, ...]

    @property
    def location(self) -> str:
        """The URI of the table's folder."""
        return self.uri.rpartition("/metadata/")[0]


class Registrar(Protocol):
    """The interface to one namespace of a catalog.

    Each method is safe to repeat, and safe while another process calls it.
    """

    def register(self, pointers: Sequence[Pointer]) -> Mapping[str, str]:
        """Set these pointers; return those that are ahead, by table.

        If a pointer is ahead, another publisher has registered a later version, and this call changes nothing: the caller
        reads the root again. A pointer is never set back. Raises OutputRefused, and changes nothing, if a table of that
        name is not one of this lake; OutputBusy if another publisher changed a pointer at the same time;
        OutputUnavailable if the catalog does not answer; SettingsError.
        """
        ...

    def close(self) -> None:
        """Close the connection, if there is one."""
        ...


def steps(
    pointers: Sequence[Pointer],
    found: Callable[[str], str | None],
    *,
    registration: str,
    where: str,
) -> dict[str, PointerStep]:
    """Return the step of each table. Raises OutputRefused if one is foreign; nothing is changed then."""
    decided = {one.table: pointer_step(found(one.table), one.uri) for one in pointers}
    for table, step in decided.items():
        if isinstance(step, Foreign):
            raise foreign(registration, where, table, step.why)
    return decided


def ahead(decided: Mapping[str, PointerStep], found: Callable[[str], str | None]) -> dict[str, str]:
    """Return the pointers that are ahead, by table."""
    return {table: found(table) or "" for table, step in decided.items() if isinstance(step, Ahead)}


def foreign(registration: str, where: str, table: str, why: str) -> OutputRefused:
    """Return the error for a table of the catalog that is not one of this lake."""
    return OutputRefused(
        f"registration {registration}: table {table} of {where}: {why}.",
        hint="find out whose table it is. Declare a namespace that belongs to this pipeline alone, under a registration "
        "of another name; or, if that table is not needed, drop it from the catalog without its files. Nothing was "
        "changed.",
    )
