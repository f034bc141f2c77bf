"""The audit passes for the unchanged product in every scenario, and reports the right counter-example of each mutant."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from oracle.mutants import MUTANTS
from oracle.scenarios import OWN, SHARED, Scenario
from oracle.scene import PARTITIONS, Scene

# The errors that tallystick itself raises in a scenario: a scenario without commits would pass as well.
REFUSED = {
    "taken_over": ["Superseded", "Superseded"],
    "recreated": ["IdentityChanged"],
    "changed": ["SchemaChanged", "SchemaChanged"],
    "expired": ["OutsideRetention", "OutsideRetention"],
}
Play = Callable[[Scenario], Scene]


@pytest.mark.parametrize("scenario", [*SHARED, *OWN], ids=lambda scenario: scenario.__name__)
def test_the_unchanged_product_passes_the_audit(play: Play, scenario: Scenario) -> None:
    scene = play(scenario)
    finding = scene.audit()
    assert finding.ok, finding
    assert scene.watcher.ok, scene.watcher.violations
    assert scene.refused == REFUSED.get(scenario.__name__, [])
    assert finding.records > 0
    assert finding.payloads == finding.records
    assert finding.logs == (0 if scenario.__name__ == "recreated" else PARTITIONS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_detected(play: Play, name: str) -> None:
    expected = MUTANTS[name]
    with expected.mutant():
        scene = play(expected.scenario)
    problems = (*scene.audit().problems, *scene.watcher.violations)
    assert any(re.search(expected.pattern, line) for line in problems), "\n".join(problems)


def test_a_watcher_reads_only_complete_snapshots_of_the_unchanged_product(play: Play) -> None:
    """The watcher polls in its own thread. The number of roots shows that it polls at all."""

    def watched(scene: Scene) -> None:
        with type(scene.watcher)(scene.place, every_s=0.01) as watcher:
            SHARED[0](scene)
        assert watcher.ok, watcher.violations
        assert watcher.roots > 1
        assert watcher.polls > watcher.roots

    play(watched)
