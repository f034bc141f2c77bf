"""The options of `tally catalog` that need no server: names of lakes, tokens, a package that is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tallystick.catalog.tokens import parse_tokens
from tallystick.cli.catalog import lakes_by_name
from tallystick.errors import InvalidRequest, SettingsError
from unit.cli.invoke import tally, tally_json

FLIGHTS, ORDERS = "s3://lake/flights", "s3://lake/a/orders/"


@pytest.fixture(autouse=True)
def _no_lake_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLYSTICK_LAKE", raising=False)


def test_a_lake_has_the_last_part_of_its_uri_as_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lakes_by_name([FLIGHTS, ORDERS], []) == {"flights": FLIGHTS, "orders": ORDERS}
    assert lakes_by_name([FLIGHTS], [f"old={ORDERS}"]) == {"flights": FLIGHTS, "old": ORDERS}
    assert lakes_by_name([FLIGHTS, FLIGHTS], []) == {"flights": FLIGHTS}
    monkeypatch.setenv("TALLYSTICK_LAKE", ORDERS)
    assert lakes_by_name([], []) == {"orders": ORDERS}
    assert lakes_by_name([FLIGHTS], []) == {"flights": FLIGHTS}


@pytest.mark.parametrize(
    ("uris", "named"),
    [
        (["s3://lake/Flights"], []),
        (["s3://lake/latest"], []),
        (["s3://lake/a.b"], []),
        (["s3://lake/x/flights", "s3://lake/y/flights"], []),
        ([], ["flights"]),
        ([], [f"Flights={FLIGHTS}"]),
        ([FLIGHTS], [f"flights={ORDERS}"]),
    ],
)
def test_a_name_that_is_not_allowed_or_twice_is_refused(uris: list[str], named: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        lakes_by_name(uris, named)


def test_without_any_lake_there_is_nothing_to_serve() -> None:
    with pytest.raises(SettingsError, match="no lake is named"):
        lakes_by_name([], [])


def test_a_new_token_is_granted_by_its_line() -> None:
    form = tally_json("catalog", FLIGHTS, ORDERS, "--new-token")
    (grant,) = parse_tokens(form["line"], where="line")
    assert grant.lakes == {"flights", "orders"}
    result = tally("catalog", "--new-token")
    token, line = result.stdout.splitlines()
    assert token not in line
    (grant,) = parse_tokens(line, where="line")
    assert grant.lakes is None


@pytest.mark.parametrize("package", ["uvicorn", "fastapi"])
def test_a_missing_package_is_named_with_the_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "tallystick.catalog.app",
        "tallystick.catalog.server",
        "tallystick.catalog.routes",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr("tallystick.catalog." + name.rpartition(".")[2], raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    result = tally("catalog", "memory://flights")
    assert result.exit_code == 77
    assert f"expected the package of {package}, found none" in " ".join(result.stderr.split())
    assert "tallystick[catalog]" in result.stderr


def test_the_options_of_the_command_are_the_documented_ones() -> None:
    help_text = tally("catalog", "--help").stdout
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "serve-a-catalog.md").read_text()
    for option in ("--name", "--tokens", "--tls", "--no-client-config", "--new-token", "--host"):
        assert option in help_text
        assert option in page
