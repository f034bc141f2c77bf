"""The wheel contains what a production run imports, and nothing else. `make wheel` compares the built file with this."""

from __future__ import annotations

import re

import grimp
import pytest

from support.wheel_files import PRODUCT, differences, expected_files

# What a production run begins with: the command, Airflow's plugin, a job file, also tallystick's own, a program that
# imports the public names, and the step of the image's build that compiles the decoders.
ENTRIES = (
    "tallystick",
    "tallystick.airflow",
    "tallystick.airflow.plugin",
    "tallystick.cli",
    "tallystick.engine.decode",
    "tallystick.errors",
    "tallystick.outputs",
    "tallystick.spark",
    "tallystick.spark.jobs.compact_files",
    "tallystick.spark.precompile",
)


def imported_by_name() -> set[str]:
    """Return the modules that the product imports by a text, such as a decoder by its format's name."""
    return {
        match
        for path in PRODUCT.rglob("*.py")
        for match in re.findall(r'"(tallystick(?:\.\w+)+)(?::\w+)?"', path.read_text())
    }


def test_every_module_of_the_wheel_is_imported_by_a_production_run() -> None:
    graph = grimp.build_graph("tallystick")
    reached = {*ENTRIES, *(imported_by_name() & graph.modules)}
    for module in tuple(reached):
        reached |= graph.find_upstream_modules(module)
    # A package is imported with each of its modules.
    reached |= {name.rpartition(".")[0] for name in reached}
    assert graph.modules - reached == set()


def test_the_wheel_is_the_package_and_its_metadata() -> None:
    names = [*expected_files(), "tallystick-0.1.0.dist-info/METADATA"]
    assert len(names) > 150
    assert differences(names) == []


@pytest.mark.parametrize(
    ("extra", "missing"), [("tallystick/testing/faults.py", ""), ("", "tallystick/py.typed")]
)
def test_a_file_too_many_and_a_missing_file_are_found(extra: str, missing: str) -> None:
    names = [name for name in (*expected_files(), extra) if name and name != missing]
    assert differences(names) == [
        f"wheel: unexpected {extra}" if extra else f"wheel: missing {missing}"
    ]
