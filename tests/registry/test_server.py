"""The embedded registry itself: it keeps what it has answered, and only its owner's programs can use it."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.registries import TestRegistry
from tallystick.errors import SettingsError
from tallystick_devstack import process
from tallystick_devstack.logins import keep_registry_login
from tallystick_devstack.process import port_is_free
from tallystick_devstack.registry import (
    SchemaRegistryServer,
    default_registry_folder,
    make_registry_class_archive,
    registry_class_archive,
)
from tallystick_devstack.testing.servers import free_port

SCHEMA = '{"type":"record","name":"R","fields":[]}'


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestRegistry]:
    """Start a registry that these tests may stop and kill. Its port never changes."""
    # Already done by setup, unless Java has changed since.
    make_registry_class_archive(default_registry_folder())
    folder = tmp_path_factory.mktemp("own-registry")
    login = keep_registry_login(folder)
    with SchemaRegistryServer(folder, port=free_port(), login=login) as server:
        yield TestRegistry(server)


def java(own: TestRegistry) -> psutil.Process:
    """Return the process of the registry itself, below its warden."""
    assert own.server.process is not None
    children = psutil.Process(own.server.process.pid).children(recursive=True)
    (found,) = [process for process in children if process.name() == "java"]
    return found


def test_it_starts_from_the_class_archive_of_setup(own: TestRegistry) -> None:
    (flag,) = registry_class_archive(default_registry_folder()).flags
    mapped = Path(f"/proc/{java(own).pid}/maps").read_text()
    base, archive = flag.partition("=")[2].split(":")
    assert base in mapped
    assert archive in mapped


def test_it_listens_on_the_loopback_interface_only(own: TestRegistry) -> None:
    listening = [c.laddr.ip for c in java(own).net_connections() if c.status == "LISTEN"]
    assert len(listening) >= 1
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_its_password_is_in_no_argument_and_required_for_every_path(own: TestRegistry) -> None:
    password = own.settings().password
    assert password is not None
    assert password not in " ".join(java(own).cmdline())
    root = own.server.url.removesuffix("/apis/ccompat/v7")
    for path in ("/apis/ccompat/v7/subjects", "/apis/registry/v3/search/artifacts", "/"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(root + path, timeout=30)
        caught.value.close()
        assert caught.value.code == 401, path


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_its_schemas_survive_its_end(own: TestRegistry, end: str) -> None:
    kept, deleted = own.subject(), own.subject()
    own.register(deleted, SCHEMA)
    own.delete(deleted)
    schema_id = own.register(kept, SCHEMA)
    assert own.server.process is not None
    if end == "kill":
        own.server.process.kill()
    own.server.stop()
    assert not own.server.alive
    own.server.start()
    assert own.client().by_id(schema_id).text == SCHEMA
    assert kept in own.client().subjects()
    assert deleted not in own.client().subjects()


def test_a_running_registry_is_not_started_again(
    own: TestRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PORT_S", 0.2)
    before = java(own).pid
    own.server.start()
    assert java(own).pid == before
    other = SchemaRegistryServer(
        own.server.log_path.parent / "other",
        port=int(own.server.url.split(":")[2].split("/")[0]),
        login=keep_registry_login(own.server.log_path.parent),
    )
    with pytest.raises(SettingsError, match="which is set for the schema registry, is in use"):
        other.start()
    assert not other.alive


def test_the_error_of_a_registry_that_cannot_start_has_the_cause(tmp_path: Path) -> None:
    (tmp_path / "schemas.mv.db").write_bytes(b"not a database" * 1000)
    broken = SchemaRegistryServer(tmp_path, login=keep_registry_login(tmp_path))
    with pytest.raises(SettingsError, match=r"the schema registry cannot start: .*schemas\.mv\.db"):
        broken.start()
    assert not broken.alive
    assert port_is_free(int(broken.url.split(":")[2].split("/")[0]))


@pytest.mark.parametrize(
    "failed",
    [
        "Failed to start application: the database is damaged",
        "Non-transient database connection error, failing immediately: File corrupted",
    ],
)
def test_a_registry_that_has_failed_and_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: str
) -> None:
    """An earlier start that failed, whose lines are in the same log, is not this one."""
    monkeypatch.setattr("tallystick_devstack.registry._START_S", 20.0)
    (tmp_path / "registry.log").write_text("Failed to start application: an earlier one\n")
    broken = SchemaRegistryServer(tmp_path, login=keep_registry_login(tmp_path))
    hangs = ["sh", "-c", f"sleep 1; echo '{failed}'; sleep 600"]
    monkeypatch.setattr(broken, "_command", lambda: hangs)
    with pytest.raises(SettingsError, match=re.escape(f"cannot start: {failed}")):
        broken.start()
    assert not broken.alive
