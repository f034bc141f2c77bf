"""Registrations in a declaration, and how each kind is opened. No test here connects to a server."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.catalogs import DeclaredCatalog
from support.small_lake import pipeline
from tallystick import outputs
from tallystick.connections.settings import SettingsNamed
from tallystick.errors import InvalidPipeline, SettingsError
from tallystick.outputs import GlueRegistration, RestRegistration, SqlRegistration
from tallystick.outputs.files import FileOutput
from tallystick.outputs.registrations.glue import GlueRegistrar
from tallystick.outputs.registrations.opening import open_registrar
from tallystick.outputs.registrations.rest import RestRegistrar
from tallystick.outputs.registrations.sql import SqlRegistrar

SQL = SqlRegistration(name="sql", catalog="company", namespace="small")
GLUE = GlueRegistration(name="glue", database="small", region="eu-west-1", account="123456789012")
REST = RestRegistration(name="rest", namespace="small", http="lakehouse", warehouse="main")


def never(*_: Any) -> Any:
    """Fail: opening a registrar reads no connection."""
    raise AssertionError


settings: SettingsNamed = never


def test_a_declaration_names_its_target_without_secrets() -> None:
    assert [one.target for one in (SQL, GLUE, REST)] == [
        "sql:default/company/small",
        "glue:123456789012/eu-west-1/small",
        "rest:lakehouse/main/small",
    ]


def test_the_kinds_are_imported_from_outputs() -> None:
    assert {"GlueRegistration", "RestRegistration", "SqlRegistration"} <= {*dir(outputs)}


def test_a_pipeline_has_the_targets_of_its_registrations_and_the_same_plan() -> None:
    plain = pipeline("s3://lakes/small")
    declared = replace(plain, registrations=[SQL, GLUE])
    assert declared.targets == {"sql": SQL.target, "glue": GLUE.target}
    assert declared.to_spec() == plain.to_spec()
    assert declared.fingerprint(b"job") == plain.fingerprint(b"job")


@pytest.mark.parametrize(
    ("registrations", "message"),
    [
        ([SQL, SQL], "unique names of outputs and registrations, found 'sql' twice"),
        ([replace(SQL, name="files")], "found 'files' twice"),
        ([SQL, replace(SQL, name="b")], "different targets, found sql:default/company/small twice"),
        ([DeclaredCatalog(target="")], "registration company: .*printable"),
        ([DeclaredCatalog(target="https://me:key@host")], "expected no @"),
        ([DeclaredCatalog(name="Not A Name")], "registration"),
        ("sql", "expected a list, found the string"),
    ],
)
def test_declarations_that_cannot_be_distinguished_are_refused(
    registrations: Any, message: str
) -> None:
    output = FileOutput(name="files", table="events", folder="/out")
    with pytest.raises(InvalidPipeline, match=message):
        replace(pipeline("s3://lakes/small"), outputs=[output], registrations=registrations)


@pytest.mark.parametrize("how", [{"catalog": ""}, {"namespace": "a b"}, {"namespace": "a..b"}])
def test_a_declaration_of_a_sql_catalog_is_checked_at_once(how: dict[str, str]) -> None:
    with pytest.raises(InvalidPipeline, match=f"registration sql: {next(iter(how))}"):
        replace(SQL, **how)


@pytest.mark.parametrize(
    ("declared", "kind"), [(SQL, SqlRegistrar), (GLUE, GlueRegistrar), (REST, RestRegistrar)]
)
def test_each_kind_is_opened_without_connecting(declared: Any, kind: type) -> None:
    registrar = open_registrar(declared, settings=settings)
    assert isinstance(registrar, kind)
    registrar.close()
    registrar.close()


def test_a_class_without_a_method_open_is_named() -> None:
    with pytest.raises(InvalidPipeline, match="registration company: expected a known kind"):
        open_registrar(DeclaredCatalog(), settings=settings)
    own = SimpleNamespace(name="own", target="x", open=lambda: "registrar")
    assert open_registrar(own, settings=settings) == "registrar"


def test_a_missing_client_library_is_an_error_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tallystick.outputs.registrations.sql", None)
    registrar = open_registrar(SQL, settings=settings)
    with pytest.raises(SettingsError, match="client library cannot be loaded") as caught:
        registrar.register([])
    assert "tallystick[postgres]" in caught.value.hint
    registrar.close()
