"""The client on a real registry: every kind of schema, ids, versions, deletions, and what does not exist."""

from __future__ import annotations

import json

import pytest

from support.registries import TestRegistry
from tallystick.errors import RegistryRefused, SchemaNotFound
from tallystick.format.schemas import SchemaKind
from tallystick.registry.port import RegisteredSchema, SchemaReference, SubjectVersion
from tallystick.registry.resolved import check_same, resolved


def record(name: str, *fields: tuple[str, object], default: bool = False) -> str:
    """Return the text of an Avro record; with `default`, every field has null as its default."""
    form = [{"name": n, "type": t} | ({"default": None} if default else {}) for n, t in fields]
    record = {"type": "record", "name": name, "namespace": "x", "fields": form}
    return json.dumps(record, separators=(",", ":"))  # registries remove spaces


MONEY = record("Money", ("cents", "long"))
ORDER = record("Order", ("total", "x.Money"))
PRICED = record("Priced", ("order", "x.Order"), ("price", "x.Money"))
COMMON_PROTO = 'syntax = "proto3";\npackage x;\n\nmessage Common {\n  int32 a = 1;\n}\n'
ORDER_PROTO = 'syntax = "proto3";\npackage x;\n\nimport "common.proto";\n\nmessage Order {\n  Common c = 1;\n}\n'
DOCUMENT = '{"type":"object","properties":{"n":{"type":"integer"}}}'


@pytest.mark.parametrize(
    ("kind", "text"), [("AVRO", MONEY), ("PROTOBUF", COMMON_PROTO), ("JSON", DOCUMENT)]
)
def test_each_kind_of_schema_is_read_as_it_was_registered(
    registry: TestRegistry, kind: SchemaKind, text: str
) -> None:
    client, subject = registry.client(), registry.subject()
    schema_id = registry.register(subject, text, kind=kind)
    expected = SubjectVersion(subject=subject, version=1, id=schema_id, kind=kind, text=text)
    assert client.versions(subject) == (expected,)
    assert client.version(subject, 1) == expected
    assert client.by_id(schema_id) == RegisteredSchema(id=schema_id, kind=kind, text=text)


def test_subjects_are_found_by_their_prefix(registry: TestRegistry) -> None:
    client, first, second = registry.client(), registry.subject(), registry.subject()
    registry.register(first, MONEY)
    registry.register(second, MONEY)
    assert client.subjects(first) == (first,)
    assert {first, second} <= set(client.subjects())
    assert client.subjects() == tuple(sorted(client.subjects()))
    assert client.subjects("none of them") == ()


def test_references_of_avro_are_resolved_with_what_they_need_first(registry: TestRegistry) -> None:
    money, order, priced = registry.subject(), registry.subject(), registry.subject()
    of_money = SchemaReference(name="x.Money", subject=money, version=1)
    of_order = SchemaReference(name="x.Order", subject=order, version=1)
    registry.register(money, MONEY)
    registry.register(order, ORDER, references=[of_money])
    schema_id = registry.register(priced, PRICED, references=[of_order, of_money])
    assert registry.client().versions(priced)[0].references == (of_order, of_money)
    (frozen,) = resolved(registry.client(), [priced]).schemas
    assert (frozen.id, frozen.subject, frozen.version) == (schema_id, priced, 1)
    assert (frozen.kind, frozen.text) == ("AVRO", PRICED)
    assert [(one.name, one.text) for one in frozen.references] == [
        ("x.Money", MONEY),
        ("x.Order", ORDER),
    ]


def test_imports_of_protobuf_are_resolved(registry: TestRegistry) -> None:
    common, order = registry.subject(), registry.subject()
    registry.register(common, COMMON_PROTO, kind="PROTOBUF")
    registry.register(
        order,
        ORDER_PROTO,
        kind="PROTOBUF",
        references=[SchemaReference(name="common.proto", subject=common, version=1)],
    )
    (frozen,) = resolved(registry.client(), [order]).schemas
    assert (frozen.kind, frozen.text) == ("PROTOBUF", ORDER_PROTO)
    assert [(one.name, one.text) for one in frozen.references] == [("common.proto", COMMON_PROTO)]


def test_a_deleted_version_is_still_read_and_keeps_its_id(registry: TestRegistry) -> None:
    subject = registry.subject()
    wider = record("Money", ("cents", ["null", "long"]), default=True)
    ids = [registry.register(subject, text) for text in (record("Money"), wider)]
    before = resolved(registry.client(), [subject]).schemas
    registry.delete(subject, 1)
    assert [one.id for one in registry.client().versions(subject)] == ids
    after = resolved(registry.client(), [subject]).schemas
    assert after == before
    assert [one.text for one in after] == [record("Money"), wider]
    check_same(before, after)


def test_a_schema_of_several_subjects_has_one_id_and_is_kept_once(registry: TestRegistry) -> None:
    first, second = registry.subject(), registry.subject()
    text = record("Both", ("n", "int"))
    ids = {registry.register(subject, text) for subject in (second, first)}
    (frozen,) = resolved(registry.client(), [second, first]).schemas
    assert {frozen.id} == ids
    assert frozen.subject == min(first, second)
    assert resolved(registry.client(), [second, first]).ids == {first: ids, second: ids}


def test_what_does_not_exist_is_not_found(registry: TestRegistry) -> None:
    client, subject = registry.client(), registry.subject()
    with pytest.raises(SchemaNotFound, match=r"answered 404 to GET /subjects/t.*40401"):
        client.versions(subject)
    registry.register(subject, MONEY)
    with pytest.raises(SchemaNotFound, match="Version 9 not found"):
        client.version(subject, 9)
    with pytest.raises(SchemaNotFound, match="999999 not found"):
        client.by_id(999_999)


@pytest.mark.parametrize("words", [{"password": "another-password"}, {"username": "another"}])
def test_wrong_credentials_are_refused_and_not_shown(
    registry: TestRegistry, words: dict[str, str]
) -> None:
    with pytest.raises(RegistryRefused, match="answered 401") as caught:
        registry.client(**words).subjects()
    assert "user, password or token" in caught.value.hint
    secrets = registry.settings(**words).secrets()
    assert not [secret for secret in secrets if secret in f"{caught.value}{caught.value.args}"]


def test_a_url_without_the_path_of_the_api_is_refused_with_a_hint(registry: TestRegistry) -> None:
    url = registry.server.url.removesuffix("/apis/ccompat/v7")
    with pytest.raises(RegistryRefused, match="answered 404") as caught:
        registry.client(urls=[url]).subjects()
    assert "with its path" in caught.value.hint
