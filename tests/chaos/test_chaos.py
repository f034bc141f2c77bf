"""The quickest nemeses on the real stack, and a product that is broken on purpose, which must be detected.

`make test-long` plays them. `make test` has cheaper tests of each fault: a killed driver and swaps that arrive late in
tests/airflow/user_actions, a killed task in tests/unit/airflow/test_spark_submit.py, lost replies in tests/contract, a
swap without its condition in tests/oracle. `make chaos` plays all nemeses, and more rounds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.course import NEMESES, Course
from chaos.rounds import Round
from chaos.servers import lost_replies
from chaos.workspace import Workspace

# Only the authors of kafka-python, boto3 and Airflow's clients can act on their warnings; servers are killed here.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(1800),
]
QUICKEST = ("swap-after", "task", "driver", "compact")
SEED = random.SystemRandom().randrange(10**6)
BROKEN = Path(__file__).with_name("broken_swap.py")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Run one stack for all rounds."""
    evidence = tmp_path_factory.mktemp("evidence")
    with Workspace(cluster=False, report=print, evidence=evidence) as running:
        yield running


def course_of(workspace: Workspace, nemesis: str, seed: int, prelude: str = "") -> Course:
    return Course(
        workspace=workspace, nemeses=[NEMESES[nemesis]], seed=seed, report=print, prelude=prelude
    )


def assert_exactly_once(course: Course) -> None:
    broken = course.run()
    assert broken is None, f"{broken.replay}\n{broken.counter_example}"
    (line,) = course.lines.values()
    assert (line.rounds, line.duplicates, line.missing) == (1, 0, 0)
    assert line.records > 100
    assert course.compactions.published > 0


@pytest.mark.parametrize("nemesis", QUICKEST)
def test_every_record_is_committed_once_under_each_nemesis(
    workspace: Workspace, nemesis: str
) -> None:
    assert_exactly_once(course_of(workspace, nemesis, SEED))


@pytest.fixture(scope="module")
def late_grant(workspace: Workspace) -> int:
    """Return the first seed that draws one day, and a granting swap without an answer that lands after the commit."""
    for seed in itertools.count():
        drawn = Round(workspace=workspace, nemesis=NEMESES["swap-delay"], seed=seed)
        rule = lost_replies(drawn, "delay")
        late = (rule.first, rule.many, rule.due_after) == (2, 1, 3)
        usual = late and drawn.lake.days == 1 and not (drawn.by_trigger or drawn.again)
        if usual and rule.answer != "hang":
            return seed
    raise AssertionError


def test_late_copy_of_a_swap_changes_nothing(workspace: Workspace, late_grant: int) -> None:
    assert_exactly_once(course_of(workspace, "swap-delay", late_grant))


def test_swap_without_its_condition_is_detected(workspace: Workspace, late_grant: int) -> None:
    """The same round as in the test above, with a product without If-Match, ends with a counter-example."""
    broken = course_of(workspace, "swap-delay", late_grant, BROKEN.read_text()).run()
    assert broken is not None
    assert f"make chaos NEMESIS=swap-delay SEED={late_grant} ROUNDS=1" == broken.replay
    assert "a late copy of a swap arrive" in broken.counter_example
    print(broken.counter_example)
