"""Schemas of subjects with all that they refer to, as a plan contains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass

from tallystick.errors import RegistryRefused, SchemaIdConflict
from tallystick.format.schemas import FrozenReference, FrozenSchema, schema_digest
from tallystick.registry.port import SchemaReference, SchemaRegistry, SubjectVersion

DEPTH_MAX = 64
SCHEMAS_MAX = 10_000
TEXT_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSubjects:
    """The schemas of subjects, sorted by id, and the ids of each subject in the order of its versions.

    Several subjects can have the same id.
    """

    schemas: tuple[FrozenSchema, ...]
    ids: Mapping[str, KeysView[int]]


def resolved(registry: SchemaRegistry, subjects: Iterable[str]) -> ResolvedSubjects:
    """Return the schemas of all versions of the subjects, each with its references.

    An id that several versions have is kept once, with the first of its subjects and its lowest version there. Raises
    SchemaIdConflict if two versions with the same id differ. Raises RegistryRefused if references form a cycle or are
    nested deeper than 64, if two of them have the same name and other texts, or if there are more than 10,000 schemas or
    16 MiB of text. Raises what the registry raises.
    """
    found: dict[int, FrozenSchema] = {}
    ids: dict[str, dict[int, None]] = {}
    fetched = _Fetched(registry)
    size = 0
    for version in fetched.of(sorted(set(subjects))):
        references = tuple(_references(fetched, version))
        schema = FrozenSchema(
            id=version.id,
            subject=version.subject,
            version=version.version,
            kind=version.kind,
            text=version.text,
            references=references,
            sha256=schema_digest(version.kind, version.text, references),
        )
        ids.setdefault(version.subject, {})[version.id] = None
        same = found.setdefault(schema.id, schema)
        if same.sha256 != schema.sha256:
            raise _conflict(same, schema, "in the same registry")
        if same is schema:
            size += sum(len(text.encode()) for text in (schema.text, *(r.text for r in references)))
            if size > TEXT_BYTES_MAX:
                raise _refused(
                    f"expected at most {TEXT_BYTES_MAX} bytes of schemas with their references, found {size} up to "
                    f"{_named(version)}"
                )
    return ResolvedSubjects(
        schemas=tuple(found[schema_id] for schema_id in sorted(found)),
        ids={subject: own.keys() for subject, own in ids.items()},
    )


def check_same(before: Iterable[FrozenSchema], now: Iterable[FrozenSchema]) -> None:
    """Check that an id means the same schema as before. Raises SchemaIdConflict for the first id that does not.

    An id that only one of the two has is not an error.
    """
    earlier = {schema.id: schema for schema in before}
    for schema in now:
        known = earlier.get(schema.id, schema)
        if known.sha256 != schema.sha256:
            raise _conflict(known, schema, "now")


class _Fetched:
    """The versions that were fetched, each once."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._found: dict[tuple[str, int], SubjectVersion] = {}

    def of(self, subjects: Iterable[str]) -> Iterator[SubjectVersion]:
        """Yield all versions of the subjects."""
        for subject in subjects:
            for version in self._registry.versions(subject):
                yield self._kept(version)

    def reference(self, reference: SchemaReference) -> SubjectVersion:
        """Return the version that a reference means."""
        known = self._found.get((reference.subject, reference.version))
        if known is not None:
            return known
        return self._kept(self._registry.version(reference.subject, reference.version))

    def _kept(self, version: SubjectVersion) -> SubjectVersion:
        kept = self._found.setdefault((version.subject, version.version), version)
        if len(self._found) > SCHEMAS_MAX:
            raise _refused(
                f"expected at most {SCHEMAS_MAX} schemas with their references, found more at {_named(version)}"
            )
        return kept


def _references(fetched: _Fetched, version: SubjectVersion) -> Iterator[FrozenReference]:
    """Yield all references of a version, each name once, after those that it needs itself."""
    done: dict[str, SubjectVersion] = {}
    size = 0

    def check_size(added: SubjectVersion) -> None:
        # Before the digest: a version may refer to the same large text under many names.
        nonlocal size
        size += len(added.text.encode())
        if len(done) > SCHEMAS_MAX or size > TEXT_BYTES_MAX:
            raise _refused(
                f"{_named(version)}: expected at most {SCHEMAS_MAX} references with {TEXT_BYTES_MAX} bytes, found more"
            )

    def visit(above: SubjectVersion, path: tuple[SubjectVersion, ...]) -> Iterator[FrozenReference]:
        for reference in above.references:
            target = fetched.reference(reference)
            if target in path:
                raise _refused(
                    f"expected references without a cycle, found {' -> '.join(map(_named, (*path, target)))}"
                )
            if len(path) > DEPTH_MAX:
                raise _refused(
                    f"expected references of {_named(version)} at most {DEPTH_MAX} deep, found more"
                )
            if reference.name not in done:
                yield from visit(target, (*path, target))
            # Read it again: what the target needs can have the same name.
            known = done.get(reference.name)
            if known is None:
                done[reference.name] = target
                check_size(target)
                yield FrozenReference(
                    name=reference.name,
                    subject=target.subject,
                    version=target.version,
                    text=target.text,
                )
            elif known.text != target.text:
                raise _refused(
                    f"{_named(version)}: expected one schema with the name {reference.name}, found {_named(known)} and "
                    f"{_named(target)}"
                )

    yield from visit(version, (version,))


def _named(version: SubjectVersion | FrozenSchema) -> str:
    return f"version {version.version} of {version.subject}"


def _refused(message: str) -> RegistryRefused:
    return RegistryRefused(
        f"schema registry: {message}.",
        hint="correct the schemas in the registry, or name fewer subjects.",
    )


def _conflict(before: FrozenSchema, now: FrozenSchema, when: str) -> SchemaIdConflict:
    return SchemaIdConflict(
        f"schema id {now.id}: expected {_named(before)} with SHA-256 {before.sha256[:12]}, found {_named(now)} with "
        f"SHA-256 {now.sha256[:12]} {when}.",
        hint="check whether the connection leads to another registry, or the registry was restored or set up again: "
        "records that contain this id would be decoded with another schema.",
    )
