"""The client of Confluent's API, which Confluent's registry, Apicurio Registry, Karapace and others answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tallystick.connections.registry import RegistrySettings
from tallystick.errors import RegistryRefused
from tallystick.format.schemas import ID_MAX, KINDS
from tallystick.registry.port import RegisteredSchema, SchemaReference, SubjectVersion
from tallystick.registry.requests import ANSWER_BYTES_MAX, PATIENCE_S, RegistryRequests

VERSIONS_MAX = 1000
"""The most versions of one subject: `versions` sends a request for each."""


class RegistryClient:
    """A SchemaRegistry over HTTP. Nothing is cached: what a deletion or a registration changes is seen at once.

    `patience_s`: how long each request is repeated while the registry cannot answer. Raises SettingsError if a file of
    the TLS settings cannot be used.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        patience_s: float = PATIENCE_S,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._endpoint = settings.endpoint
        self._requests = RegistryRequests(
            settings, patience_s=patience_s, answer_bytes_max=answer_bytes_max
        )

    def subjects(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of all subjects that begin with `prefix`, sorted."""
        # Not every registry knows the parameter, so the answer may have other subjects.
        path = f"/subjects?subjectPrefix={quote(prefix, safe='')}" if prefix else "/subjects"
        found = self._requests.get(path)
        if not isinstance(found, list) or not all(type(name) is str for name in found):
            raise self._unusable(path, "a list of strings", found)
        return tuple(sorted({name for name in found if name.startswith(prefix)}))

    def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        """Return all versions of a subject in their order, also deleted ones.

        Raises RegistryRefused if it has more than 1,000.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions?deleted=true"
        found = self._requests.get(path)
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise self._unusable(path, "a list of integers", found)
        numbers = sorted(set(found))
        if len(numbers) > VERSIONS_MAX:
            raise RegistryRefused(
                f"schema registry at {self._endpoint}, subject {subject}: expected at most {VERSIONS_MAX} versions, "
                f"found {len(numbers)}.",
                hint="delete the versions permanently whose records are no longer in the log.",
            )
        return tuple(self.version(subject, number) for number in numbers)

    def version(self, subject: str, version: int) -> SubjectVersion:
        """Return one version of a subject, also a deleted one."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        found = self._object(path)
        schema = self._schema(path, found, self._field(path, found, "id", int))
        number = self._field(path, found, "version", int)
        if number != version or found.get("subject") != subject:
            raise self._unusable(path, f"version {version} of {subject}", found)
        return SubjectVersion(
            subject=subject,
            version=version,
            id=schema.id,
            kind=schema.kind,
            text=schema.text,
            references=schema.references,
        )

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id."""
        path = f"/schemas/ids/{schema_id}"
        return self._schema(path, self._object(path), schema_id)

    def _object(self, path: str) -> dict[str, Any]:
        found = self._requests.get(path)
        if not isinstance(found, dict):
            raise self._unusable(path, "an object", found)
        return found

    def _schema(self, path: str, found: dict[str, Any], schema_id: int) -> RegisteredSchema:
        named = found.get("schemaType")
        # Registries leave it out for Avro.
        kind = "AVRO" if named is None else next((one for one in KINDS if one == named), None)
        if kind is None:
            raise self._unusable(path, f"a schemaType of {', '.join(KINDS)}", named)
        if not 0 <= schema_id <= ID_MAX:
            raise self._unusable(path, f"an id from 0 to {ID_MAX}", schema_id)
        references = found.get("references")
        references = [] if references is None else references
        if not isinstance(references, list) or not all(isinstance(r, dict) for r in references):
            raise self._unusable(path, "references as a list of objects", references)
        return RegisteredSchema(
            id=schema_id,
            kind=kind,
            text=self._field(path, found, "schema", str),
            references=tuple(
                SchemaReference(
                    name=self._field(path, one, "name", str),
                    subject=self._field(path, one, "subject", str),
                    version=self._field(path, one, "version", int),
                )
                for one in references
            ),
        )

    def _field(self, path: str, found: dict[str, Any], name: str, kind: type) -> Any:
        value = found.get(name)
        # Compare exact types: True is an instance of int. A lone surrogate is no text: it has no UTF-8.
        if type(value) is not kind or (type(value) is str and not _has_utf8(value)):
            expected = "an integer" if kind is int else "a text"
            raise self._unusable(path, f"{expected} as {name}", value)
        return value

    def _unusable(self, path: str, expected: str, found: Any) -> RegistryRefused:
        return RegistryRefused(
            f"schema registry at {self._endpoint}, GET {path}: expected {expected}, found {ascii(found)[:100]}.",
            hint="check the url of the connection: it must be that of Confluent's API, with its path.",
        )


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
