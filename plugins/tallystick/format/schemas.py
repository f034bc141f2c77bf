"""Schemas of a registry as a plan contains them: the text, and the texts of all that it refers to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from tallystick.format import canonical
from tallystick.format.codec import StoredValue

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
KINDS: tuple[SchemaKind, ...] = get_args(SchemaKind)
ID_MAX = 2**31 - 1
"""The largest id: a record has it as a signed integer of four bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenReference(StoredValue):
    """A schema to which another one refers, under the name that it has there."""

    name: str
    subject: str
    version: int
    text: str

    def __post_init__(self) -> None:
        if self.version < 1:
            raise ValueError(f"expected a version from 1, found {self.version}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSchema(StoredValue):
    """A schema by its id, with every reference, direct or not, after those that it needs itself.

    `sha256` is the digest of kind, text and references (`schema_digest`). `compiled`: of a Protobuf schema, its
    FileDescriptorSet in base64, so that tasks compile nothing.
    """

    id: int
    subject: str
    version: int
    kind: SchemaKind
    text: str
    references: tuple[FrozenReference, ...]
    sha256: str
    compiled: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.id <= ID_MAX:
            raise ValueError(f"expected an id from 0 to {ID_MAX}, found {self.id}")
        if self.version < 1:
            raise ValueError(f"expected a version from 1, found {self.version}")
        if self.kind not in KINDS:
            raise ValueError(f"expected a kind of {', '.join(KINDS)}, found {self.kind!r}")
        names = [reference.name for reference in self.references]
        if len(set(names)) != len(names):
            raise ValueError(f"expected each reference once, found {', '.join(names)}")
        found = schema_digest(self.kind, self.text, self.references)
        if self.sha256 != found:
            raise ValueError(
                f"expected the digest of its content, {found}, found {self.sha256[:80]}"
            )


def schema_digest(kind: str, text: str, references: Iterable[FrozenReference]) -> str:
    """Return the SHA-256 of a schema's content in canonical JSON. Its id, subject and version are not part of it.

    Nor are the subjects and versions of the references: registries can name another place with the same text.
    """
    content = {
        "kind": kind,
        "text": text,
        "references": sorted([reference.name, reference.text] for reference in references),
    }
    return hashlib.sha256(canonical.dumps(content)).hexdigest()
