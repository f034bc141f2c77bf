"""Class archives: created once for one Java and one list of jars, complete or not at all, and never required."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack import class_archive
from tallystick_devstack.class_archive import ClassArchive
from tallystick_devstack.java import find_java


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"a")
    return ClassArchive(program="p", jars=jars, folder=tmp_path / "class archives")


def run_java(flags: list[str]) -> None:
    subprocess.run([find_java(), *flags, "-version"], check=True, capture_output=True)


def test_an_archive_is_created_once_and_then_used(archive: ClassArchive) -> None:
    assert archive.flags == []
    archive.make(run_java)
    assert archive.flags == [f"-XX:SharedArchiveFile={archive.path}"]
    assert [p for p in archive.folder.iterdir()] == [archive.path]
    started = subprocess.run(
        [find_java(), *archive.flags, "-Xlog:cds", "-version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert f"trying to map {archive.path}" in started.stdout

    def never(flags: list[str]) -> None:
        raise AssertionError("the archive exists")

    archive.make(never)


@pytest.mark.parametrize("change", ["content", "time", "another jar", "java"])
def test_other_jars_or_another_java_need_another_archive(
    archive: ClassArchive, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.make(run_java)
    first, jar = archive.path, archive.jars / "a.jar"
    if change == "content":
        jar.write_bytes(b"bb")
    elif change == "time":
        os.utime(jar, ns=(1, 1))
    elif change == "another jar":
        (archive.jars / "b.jar").touch()
    else:
        there = tmp_path / "jdk" / "bin"
        there.mkdir(parents=True)
        (there / "java").touch(mode=0o755)
        monkeypatch.setenv("JAVA_HOME", str(there.parent))
    assert archive.path != first
    assert archive.flags == []
    monkeypatch.undo()
    archive.make(run_java)
    assert [p for p in archive.folder.iterdir()] == [archive.path]


def test_a_failed_archive_leaves_nothing(archive: ClassArchive) -> None:
    def fails(flags: list[str]) -> None:
        raise SettingsError("exit code 1.", hint="look.")

    with pytest.raises(SettingsError, match="exit code 1"):
        archive.make(fails)
    with pytest.raises(FileNotFoundError):
        archive.make(lambda flags: None)  # a JVM that succeeded and wrote nothing
    assert archive.flags == []
    assert list(archive.folder.iterdir()) == []


def test_a_torn_archive_is_never_used(archive: ClassArchive) -> None:
    def torn(flags: list[str]) -> None:
        run_java(flags)
        fresh = Path(flags[0].partition("=")[2])
        fresh.chmod(0o600)
        os.truncate(fresh, 4096)

    with pytest.raises(SettingsError, match="a JVM from the class archive of p ended with"):
        archive.make(torn)
    assert archive.flags == []
    assert list(archive.folder.iterdir()) == []


def test_drivers_get_the_archive_as_one_option_even_if_its_path_has_spaces(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "of_spark", lambda: archive)
    assert class_archive.submit_options({}) == class_archive.COMPILES_LITTLE
    archive.make(run_java)
    assert class_archive.submit_options({}) == (
        f'{class_archive.COMPILES_LITTLE} "-XX:SharedArchiveFile={archive.path}"'
    )
    # It would not match, and every driver would log that.
    on_a_cluster = {"SPARK_CONF_DIR": "/some/conf"}
    assert class_archive.submit_options(on_a_cluster) == class_archive.COMPILES_LITTLE
