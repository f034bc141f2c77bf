"""The schemas of each registry that a plan contains, so that every attempt at it decodes with the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.schemas import FrozenSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRegistry(StoredValue):
    """The schemas of one registry, by the name of its connection, in the order of their ids."""

    name: str
    schemas: tuple[FrozenSchema, ...]

    def __post_init__(self) -> None:
        keys.check_name(self.name, "connection")
        ids = [schema.id for schema in self.schemas]
        if ids != sorted(set(ids)):
            raise ValueError(
                f"{self.name}: expected schemas in the order of their ids, found {ids}"
            )

    @staticmethod
    def schemas_of(registries: Iterable[PlannedRegistry], name: str) -> Mapping[int, FrozenSchema]:
        """Return the schemas of a registry by id; none if the plan has none of it."""
        return {
            s.id: s for registry in registries if registry.name == name for s in registry.schemas
        }
