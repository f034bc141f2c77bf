"""The oracle finds the whole product good in every story, and each mutant bad, with the right counter-example."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from oracle.mutants import MUTANTS
from oracle.scene import PARTITIONS, Scene
from oracle.stories import OWN, SHARED, Story

# What tallystick itself refuses in a story: a story in which nothing happens would be good as well.
REFUSED = {
    "taken_over": ["Superseded", "Superseded"],
    "recreated": ["IdentityChanged"],
    "expired": ["OutsideRetention", "OutsideRetention"],
}
Play = Callable[[Story], Scene]


@pytest.mark.parametrize("story", [*SHARED, *OWN], ids=lambda story: story.__name__)
def test_the_whole_product_is_found_good(play: Play, story: Story) -> None:
    scene = play(story)
    found = scene.audit()
    assert found.ok, found
    assert scene.watcher.ok, scene.watcher.violations
    assert scene.refused == REFUSED.get(story.__name__, [])
    assert found.records > 0
    assert found.payloads == found.records
    assert found.logs == (0 if story.__name__ == "recreated" else PARTITIONS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(play: Play, name: str) -> None:
    caught = MUTANTS[name]
    with caught.mutant():
        scene = play(caught.story)
    told = (*scene.audit().problems, *scene.watcher.violations)
    assert any(re.search(caught.says, line) for line in told), "\n".join(told)


def test_a_watcher_that_looks_by_itself_sees_the_cuts_of_the_whole_product(play: Play) -> None:
    """The thread beside a scene: that its lake is watched at all is shown by the roots that it saw."""

    def watched(scene: Scene) -> None:
        with type(scene.watcher)(scene.place, every_s=0.01) as watcher:
            SHARED[0](scene)
        assert watcher.ok, watcher.violations
        assert watcher.roots > 1
        assert watcher.polls > watcher.roots

    play(watched)
