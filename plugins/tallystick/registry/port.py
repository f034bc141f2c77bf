"""The port of a schema registry: what is read of it, and by which verbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tallystick.format.schemas import SchemaKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReference:
    """A schema that another one uses: its name there (a type of Avro, an import of Protobuf, a URL), and where it is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema by its id."""

    id: int
    kind: SchemaKind
    text: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectVersion:
    """A version of a subject: a number that counts from 1 in its subject, and the schema with its id."""

    subject: str
    version: int
    id: int
    kind: SchemaKind
    text: str
    references: tuple[SchemaReference, ...] = ()


class SchemaRegistry(Protocol):
    """A schema registry. No verb writes.

    Every verb raises RegistryUnavailable if no answer comes in time, SchemaNotFound if the registry does not have it, and
    RegistryRefused if it refuses the credentials or if its answer cannot be used.
    """

    def subjects(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of all subjects that begin with `prefix`, sorted."""
        ...

    def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        """Return all versions of a subject, also deleted ones: records with their ids are still in the log."""
        ...

    def version(self, subject: str, version: int) -> SubjectVersion:
        """Return one version of a subject, also a deleted one."""
        ...

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id."""
        ...
