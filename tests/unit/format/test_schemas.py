"""Stored schemas: they check themselves, and their digest is that of their content alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import Corrupt
from tallystick.format.schemas import ID_MAX, FrozenReference, FrozenSchema, schema_digest

BASE = FrozenReference(name="x.Base", subject="base", version=3, text='"int"')
OTHER = FrozenReference(name="x.Other", subject="other", version=1, text='"long"')


def frozen(**changes: Any) -> FrozenSchema:
    """Return a schema with these changes and its digest."""
    fields: dict[str, Any] = {
        "id": 7,
        "subject": "orders-value",
        "version": 2,
        "kind": "AVRO",
        "text": '"x.Base"',
        "references": (BASE, OTHER),
    } | changes
    digest = schema_digest(fields["kind"], fields["text"], fields["references"])
    return FrozenSchema(**{"sha256": digest} | fields)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, ID_MAX))
def test_a_schema_is_read_as_it_was_stored(text: str, schema_id: int) -> None:
    schema = frozen(text=text, id=schema_id)
    assert FrozenSchema.from_text(schema.to_text(), "plan.schemas[0]") == schema


def test_its_digest_is_stable() -> None:
    """It is in stored plans: another digest would make them unreadable."""
    assert frozen().sha256 == "3b9e0eac1daf18766087302574c800a59d2ef1ccfcffbc25c5ca28e5b4ef80ca"


@pytest.mark.parametrize(
    "changes",
    [
        {"text": '"x.Other"'},
        {"kind": "JSON"},
        {"references": ()},
        {"references": (replace(BASE, text="t"), OTHER)},
    ],
)
def test_another_content_has_another_digest(changes: dict[str, Any]) -> None:
    assert frozen(**changes).sha256 != frozen().sha256


@pytest.mark.parametrize(
    "changes",
    [
        {"id": 8},
        {"subject": "s"},
        {"version": 9},
        {"references": (OTHER, BASE)},
        {"references": (replace(BASE, subject="s", version=9), OTHER)},
    ],
)
def test_the_same_content_has_the_same_digest(changes: dict[str, Any]) -> None:
    assert frozen(**changes).sha256 == frozen().sha256


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": -1}, "expected an id from 0 to 2147483647, found -1"),
        ({"id": ID_MAX + 1}, "expected an id from 0 to 2147483647, found 2147483648"),
        ({"version": 0}, "expected a version from 1, found 0"),
        ({"kind": "XML"}, "expected a kind of AVRO, PROTOBUF, JSON, found 'XML'"),
        ({"references": (BASE, BASE)}, "expected each reference once, found x.Base, x.Base"),
        ({"sha256": "0" * 64}, "expected the digest of its content, "),
    ],
)
def test_an_invalid_schema_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        frozen(**changes)


def test_a_reference_has_a_version_from_1() -> None:
    with pytest.raises(ValueError, match="expected a version from 1, found -1"):
        replace(BASE, version=-1)


def test_a_changed_text_in_a_stored_schema_is_corrupt() -> None:
    stored = frozen().to_text().replace("x.Base", "x.Case", 1)
    with pytest.raises(Corrupt, match=r"plan: expected the digest of its content"):
        FrozenSchema.from_text(stored, "plan")
