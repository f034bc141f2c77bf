"""A schema registry of a dict, for tests of what reads one."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.errors import RegistryUnavailable, SchemaNotFound
from tallystick.format.schemas import SchemaKind
from tallystick.registry.port import RegisteredSchema, SchemaReference, SubjectVersion


@dataclass
class DictRegistry:
    """A registry whose schemas get ids from 1. `down`: no verb is answered. `requests`: the subjects that were read."""

    found: dict[str, list[SubjectVersion]] = field(default_factory=dict)
    down: bool = False
    requests: list[str] = field(default_factory=list)

    def register(
        self,
        subject: str,
        text: str,
        *,
        kind: SchemaKind = "AVRO",
        schema_id: int | None = None,
        references: tuple[SchemaReference, ...] = (),
    ) -> int:
        """Add a version of a subject and return its id."""
        versions = self.found.setdefault(subject, [])
        known = sum(map(len, self.found.values()))
        number = known + 1 if schema_id is None else schema_id
        version = len(versions) + 1
        versions.append(
            SubjectVersion(
                subject=subject,
                version=version,
                id=number,
                kind=kind,
                text=text,
                references=references,
            )
        )
        return number

    def subjects(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of all subjects that begin with `prefix`."""
        self._answer("")
        return tuple(sorted(name for name in self.found if name.startswith(prefix)))

    def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        """Return all versions of a subject."""
        self._answer(subject)
        if subject not in self.found:
            raise SchemaNotFound(f"subject {subject} does not exist.", hint="register it.")
        return tuple(self.found[subject])

    def version(self, subject: str, version: int) -> SubjectVersion:
        """Return one version of a subject."""
        return self.versions(subject)[version - 1]

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id."""
        self._answer("")
        one = next(v for all_ in self.found.values() for v in all_ if v.id == schema_id)
        return RegisteredSchema(id=one.id, kind=one.kind, text=one.text, references=one.references)

    def _answer(self, subject: str) -> None:
        if self.down:
            raise RegistryUnavailable("schema registry: no answer.", hint="wait.")
        self.requests.append(subject)
