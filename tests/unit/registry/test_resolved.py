"""Schemas with all that they refer to: complete, in order, bounded, and the same for the same content."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import RegistryRefused, SchemaIdConflict, SchemaNotFound
from tallystick.format.schemas import FrozenSchema
from tallystick.registry import resolved as module
from tallystick.registry.port import RegisteredSchema, SchemaReference, SubjectVersion
from tallystick.registry.resolved import DEPTH_MAX, SCHEMAS_MAX, check_same, resolved


class Registered:
    """A registry in memory, which counts what is read of it."""

    def __init__(self, *versions: SubjectVersion) -> None:
        self.found = {(one.subject, one.version): one for one in versions}
        self.read: list[tuple[str, int]] = []

    def subjects(self, prefix: str = "") -> tuple[str, ...]:
        """Return the subjects with this prefix."""
        return tuple(sorted({name for name, _ in self.found if name.startswith(prefix)}))

    def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        """Return the versions of a subject."""
        return tuple(one for (name, _), one in sorted(self.found.items()) if name == subject)

    def version(self, subject: str, version: int) -> SubjectVersion:
        """Return a version."""
        self.read.append((subject, version))
        if (subject, version) not in self.found:
            raise SchemaNotFound(f"{subject} {version} not found.", hint="register it.")
        return self.found[subject, version]

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return a schema."""
        raise NotImplementedError


def schema(
    subject: str, *needs: str, id: int, version: int = 1, text: str | None = None
) -> SubjectVersion:
    """Return a version that refers to version 1 of the subjects `needs`, under their names."""
    return SubjectVersion(
        subject=subject,
        version=version,
        id=id,
        kind="AVRO",
        text=f"text of {subject}" if text is None else text,
        references=tuple(SchemaReference(name=name, subject=name, version=1) for name in needs),
    )


def names(frozen: FrozenSchema) -> list[str]:
    return [one.name for one in frozen.references]


def test_all_versions_of_all_subjects_are_sorted_by_id() -> None:
    registry = Registered(
        schema("b", id=3),
        schema("b", id=1, version=2, text="other"),
        schema("a", id=2),
        schema("c", id=9),
    )
    found = resolved(registry, ["b", "a", "b"]).schemas
    assert [(one.id, one.subject, one.version) for one in found] == [
        (1, "b", 2),
        (2, "a", 1),
        (3, "b", 1),
    ]
    assert resolved(registry, []).schemas == ()


def test_each_subject_has_its_ids_also_those_that_another_subject_has() -> None:
    registry = Registered(
        schema("b", id=1, text="same"),
        schema("a", id=1, text="same"),
        schema("a", id=2, version=2, text="other"),
    )
    found = resolved(registry, ["a", "b"])
    assert [(one.id, one.subject, one.version) for one in found.schemas] == [
        (1, "a", 1),
        (2, "a", 2),
    ]
    assert found.ids == {"a": {1, 2}, "b": {1}}


def test_references_come_after_what_they_need_and_each_once() -> None:
    registry = Registered(
        schema("top", "left", "right", id=1),
        schema("left", "base", id=2),
        schema("right", "base", id=3),
        schema("base", id=4),
    )
    (found,) = resolved(registry, ["top"]).schemas
    assert names(found) == ["base", "left", "right"]
    assert [one.text for one in found.references] == [f"text of {name}" for name in names(found)]
    assert sorted(registry.read) == [("base", 1), ("left", 1), ("right", 1)]


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(st.sets(st.integers(0, n - 1)), min_size=n, max_size=n)
    )
)
def test_every_reference_follows_all_that_it_needs(needs: list[set[int]]) -> None:
    """Schema i refers to some with lower numbers: any graph without cycles."""
    below = [sorted(one for one in some if one < i) for i, some in enumerate(needs)]
    registry = Registered(
        *(schema(f"s{i}", *(f"s{one}" for one in some), id=i) for i, some in enumerate(below))
    )
    found = resolved(registry, registry.subjects()).schemas
    assert [one.id for one in found] == list(range(len(needs)))
    for one in found:
        order = [int(name.removeprefix("s")) for name in names(one)]
        reached = set(below[one.id])
        for number in range(one.id, -1, -1):
            reached |= set(below[number]) if number in reached else set()
        assert set(order) == reached
        assert len(order) == len(reached)
        assert all(set(below[number]) <= set(order[:at]) for at, number in enumerate(order))


@pytest.mark.parametrize(
    ("versions", "cycle"),
    [
        ([schema("a", "a", id=1)], "version 1 of a -> version 1 of a"),
        (
            [schema("a", "b", id=1), schema("b", "c", id=2), schema("c", "b", id=3)],
            "version 1 of a -> version 1 of b -> version 1 of c -> version 1 of b",
        ),
    ],
)
def test_a_cycle_is_refused_with_its_path(versions: list[SubjectVersion], cycle: str) -> None:
    with pytest.raises(RegistryRefused, match=f"without a cycle, found {cycle}"):
        resolved(Registered(*versions), ["a"])


@pytest.mark.parametrize("depth", [DEPTH_MAX, DEPTH_MAX + 1])
def test_references_have_a_limit_of_depth(depth: int) -> None:
    chain = [schema(f"s{i}", f"s{i + 1}", id=i) for i in range(depth)]
    registry = Registered(*chain, schema(f"s{depth}", id=depth))
    if depth <= DEPTH_MAX:
        assert len(resolved(registry, ["s0"]).schemas[0].references) == depth
        return
    with pytest.raises(RegistryRefused, match="version 1 of s0 at most 64 deep, found more"):
        resolved(registry, ["s0"])


@pytest.mark.parametrize("count", [SCHEMAS_MAX, SCHEMAS_MAX + 1])
def test_schemas_have_a_limit_of_number(count: int) -> None:
    registry = Registered(*(schema("s", id=i, version=i, text=str(i)) for i in range(1, count + 1)))
    if count <= SCHEMAS_MAX:
        assert len(resolved(registry, ["s"]).schemas) == count
        return
    with pytest.raises(RegistryRefused, match=r"at most 10000 schemas.*version 10001 of s"):
        resolved(registry, ["s"])


@pytest.mark.parametrize("extra", [0, 1])
def test_schemas_have_a_limit_of_bytes_with_their_references(
    extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TEXT_BYTES_MAX", 40)
    base = schema("base", id=3, text="é" * 10)
    users = [
        schema("s", "base", id=i, version=i, text=str(i) * (extra if i == 1 else 0)) for i in (1, 2)
    ]
    registry = Registered(base, *users)
    if not extra:
        assert len(resolved(registry, ["s"]).schemas) == 2
        return
    with pytest.raises(RegistryRefused, match=r"at most 40 bytes.*found 41 up to version 2 of s"):
        resolved(registry, ["s"])


@pytest.mark.parametrize("limit", ["TEXT_BYTES_MAX", "SCHEMAS_MAX"])
def test_one_text_under_many_names_is_refused_before_it_is_repeated(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, 50)
    base = schema("base", id=1, text="x")
    many = tuple(SchemaReference(name=f"n{i}", subject="base", version=1) for i in range(1000))
    registry = Registered(base, replace(schema("bomb", id=2), references=many))
    digested: list[int] = []
    real = module.schema_digest

    def counting(kind: str, text: str, references: tuple[object, ...]) -> str:
        digested.append(len(references))
        return real(kind, text, references)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "schema_digest", counting)
    with pytest.raises(RegistryRefused, match=r"version 1 of bomb: expected at most .* found more"):
        resolved(registry, ["bomb"])
    assert digested == []


def test_an_id_of_several_versions_is_kept_once_and_must_mean_the_same() -> None:
    same = [schema(name, id=7, text="t") for name in ("b", "a")]
    (kept,) = resolved(Registered(*same), ["b", "a"]).schemas
    assert (kept.id, kept.subject) == (7, "a")
    differing = [same[0], replace(same[1], text="u")]
    with pytest.raises(SchemaIdConflict, match=r"schema id 7: expected version 1 of a .* 1 of b"):
        resolved(Registered(*differing), ["b", "a"])


def test_one_name_for_two_texts_is_refused() -> None:
    other = SchemaReference(name="base", subject="base", version=2)
    registry = Registered(
        schema("top", "left", "base", id=1),
        replace(schema("left", id=2), references=(other,)),
        schema("base", id=3),
        schema("base", id=4, version=2, text="another"),
    )
    with pytest.raises(RegistryRefused, match="one schema with the name base, found version 2"):
        resolved(registry, ["top"])


def test_a_name_that_the_named_schema_needs_itself_is_refused() -> None:
    named_alike = SchemaReference(name="same", subject="outer", version=1)
    inner = SchemaReference(name="same", subject="inner", version=1)
    registry = Registered(
        replace(schema("top", id=1), references=(named_alike,)),
        replace(schema("outer", id=2), references=(inner,)),
        schema("inner", id=3),
    )
    with pytest.raises(RegistryRefused, match="one schema with the name same, found version 1 of"):
        resolved(registry, ["top"])


def test_what_a_reference_names_must_exist() -> None:
    with pytest.raises(SchemaNotFound, match="gone 1 not found"):
        resolved(Registered(schema("top", "gone", id=1)), ["top"])


def test_an_id_must_mean_what_it_meant_before() -> None:
    before = resolved(Registered(schema("a", "b", id=1), schema("b", id=2)), ["a", "b"]).schemas
    check_same(before, before)
    check_same(before, before[:1])
    check_same(before[:1], before)
    check_same([], before)
    again = resolved(Registered(schema("c", id=2, text="text of b", version=5)), ["c"]).schemas
    check_same(before, again)
    for changed in (
        Registered(schema("a", "b", id=1, text="new"), schema("b", id=2)),
        Registered(schema("a", "b", id=1), schema("b", id=2, text="new")),
        Registered(schema("a", id=1)),
    ):
        now = resolved(changed, ["a"]).schemas
        with pytest.raises(
            SchemaIdConflict, match="schema id 1: expected version 1 of a"
        ) as caught:
            check_same(before, now)
        assert before[0].sha256[:12] in caught.value.message
        assert now[0].sha256[:12] in caught.value.message
