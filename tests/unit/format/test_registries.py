"""The schemas of registries in a plan: each registry once, ids in order, and looked up by the registry's name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallystick.format.registries import PlannedRegistry
from unit.format.samples import SAMPLE_PLAN, SAMPLE_SCHEMA

OTHER = replace(SAMPLE_SCHEMA, id=9)


@pytest.mark.parametrize(
    "schemas", [(OTHER, SAMPLE_SCHEMA), (OTHER, OTHER)], ids=["order", "twice"]
)
def test_schemas_are_in_the_order_of_their_ids_each_once(schemas: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="expected schemas in the order of their ids"):
        PlannedRegistry(name="default", schemas=schemas)  # type: ignore[arg-type]


def test_a_plan_has_each_registry_once() -> None:
    one = PlannedRegistry(name="default", schemas=())
    with pytest.raises(ValueError, match="expected each registry once, found a registry twice"):
        replace(SAMPLE_PLAN, registries=(one, one))


def test_schemas_are_found_by_the_name_of_their_registry() -> None:
    registries = (
        PlannedRegistry(name="a", schemas=(SAMPLE_SCHEMA, OTHER)),
        PlannedRegistry(name="b", schemas=(replace(OTHER, subject="else"),)),
    )
    assert dict(PlannedRegistry.schemas_of(registries, "a")) == {7: SAMPLE_SCHEMA, 9: OTHER}
    assert dict(PlannedRegistry.schemas_of(registries, "c")) == {}
