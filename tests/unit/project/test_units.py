"""How the tests are shared out: the order of the units names what exists, and the servers of a folder stop with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.units import LONGEST, SHARED, rank_of, unit_of

TESTS = Path(__file__).parents[2]
CONFTEST = """
import pytest

@pytest.fixture(scope="package")
def server():
    print("start server")
    yield
    print("stop server")

@pytest.fixture(scope="package")
def topic(server):
    print("start topic")
    yield
    print("stop topic")
"""


@pytest.mark.parametrize("start", [*LONGEST, *SHARED])
def test_the_names_of_the_order_and_of_the_shared_folders_exist(start: str) -> None:
    assert (TESTS.parent / start).exists()


def test_a_unit_is_a_file_or_a_folder_or_one_of_two_parts_of_it() -> None:
    for folder, second in SHARED.items():
        files = [
            f"{path.relative_to(TESTS.parent)}"
            for path in (TESTS.parent / folder).glob("test_*.py")
        ]
        units = {unit_of(f"{file}::test_x") for file in files}
        assert units == ({folder} if second is None else {folder, second})
    assert (
        unit_of("tests/unit/store/test_bucket.py::test_x[a::b]")
        == "tests/unit/store/test_bucket.py"
    )
    assert rank_of("tests/kafka/test_reader.py::test_x") < rank_of(
        "tests/unit/store/test_bucket.py::x"
    )


def test_the_servers_of_a_folder_stop_with_its_last_test_and_start_again_for_another(
    tmp_path: Path,
) -> None:
    for name, fixture in (
        ("a/test_first", "topic"),
        ("b/test_other", ""),
        ("a/test_last", "server"),
    ):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"def test_it({fixture}):\n    print('{path.stem}')\n")
    (tmp_path / "a" / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n0", "--import-mode=importlib"]
    options = ["-p", "no:cacheprovider", "-p", "support.folder_servers", f"--rootdir={tmp_path}"]
    files = ["a/test_first.py", "b/test_other.py", "a/test_last.py"]
    ended = subprocess.run(
        [*command, *options, "-c", os.devnull, *files],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line.strip(".") for line in ended.stdout.splitlines()]
    assert [line for line in lines if "server" in line or "topic" in line or "test_" in line] == [
        *("start server", "start topic", "test_first", "stop topic", "stop server"),
        "test_other",
        *("start server", "test_last", "stop server"),
    ]
