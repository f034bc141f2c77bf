"""Mutants of tallystick: each patches its own code so that one rule no longer holds, and the oracle must notice.

Where tallystick's own checks (before a swap, of a report) would stop a mutant, they are silenced in it: what is tested is
the oracle, not what stands before it. `MUTANTS` says for each the story that shows it and what the oracle must say.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from oracle import mutants_of_commits as commits
from oracle import mutants_of_plans as plans
from oracle import stories
from oracle.stories import Story

Mutant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """A mutant, the story that shows it, and a pattern of one counter-example that the oracle must give."""

    mutant: Mutant
    story: Story
    says: str


MUTANTS: dict[str, Caught] = {
    name: Caught(mutant=mutant, story=story, says=says)
    for name, mutant, story, says in (
        (
            "no If-Match",
            commits.no_if_match,
            stories.raced,
            r"^acknowledged: the commit of plans/.* in no record",
        ),
        (
            "blind retry of a swap in doubt",
            commits.blind_retry,
            stories.doubted,
            r"^acknowledged: the commit of plans/",
        ),
        (
            "files deleted on a timeout",
            commits.delete_on_timeout,
            stories.doubted,
            r"^object: tables/.* is not there",
        ),
        (
            "409 taken for a loss",
            commits.conflict_is_a_loss,
            stories.conflicted,
            r"^object: tables/.* is not there",
        ),
        (
            "pointer before data",
            commits.pointer_before_data,
            stories.first_day,
            r"^cut: version \d+: table .* there is None",
        ),
        (
            "AlreadyCommitted never answered",
            commits.never_already_committed,
            stories.first_day,
            r"^duplicate: events\[",
        ),
        (
            "a zombie's plan commits",
            commits.zombie_commits,
            stories.taken_over,
            r"^duplicate: events\[",
        ),
        (
            "a replacement only appends",
            commits.replacement_appends,
            stories.replaced,
            r"^duplicate: events\[",
        ),
        (
            "report taken from a LIST",
            commits.report_from_a_list,
            stories.attempts,
            r"^duplicate: events\[",
        ),
        (
            "attempts share a prefix",
            commits.shared_prefix,
            stories.attempts,
            r"^object: .* it was overwritten",
        ),
        (
            "dead letters not committed",
            commits.dead_letters_not_committed,
            stories.first_day,
            r"^missing: events\[",
        ),
        (
            "dead letters committed apart",
            commits.dead_letters_committed_apart,
            stories.first_day,
            r"^cut: version \d+: table dead_letters",
        ),
        (
            "an aborted interval is skipped",
            commits.aborted_interval_skipped,
            stories.days,
            r"^acknowledged: the commit of plans/20130102",
        ),
        (
            "an empty interval is skipped",
            plans.empty_interval_skipped,
            stories.days,
            r"^tiling: after \[2013-01-03.* comes \[2013-01-05",
        ),
        (
            "record chain truncated",
            commits.chain_truncated,
            stories.days,
            r"^chain: record commits/0",
        ),
        (
            "end = high watermark",
            plans.ends_at_the_high_watermark,
            stories.days,
            r"^time: events\[",
        ),
        (
            "end = start, until the last interval",
            plans.ends_at_the_floor,
            stories.days,
            r"^time: events\[.* lies in \[2013-01-05",
        ),
        ("boundaries move", plans.boundaries_move, stories.late, r"^missing: "),
        (
            "end asked for again while staging",
            plans.end_asked_for_again,
            stories.late,
            r"^duplicate: ",
        ),
        (
            "topic id unchecked",
            plans.topic_id_unchecked,
            stories.recreated,
            r"^payload: .* n is 2000000, sent was",
        ),
        (
            "a loss is accepted silently",
            plans.loss_accepted_silently,
            stories.expired,
            r"^account: .* are lost, and nobody accepted",
        ),
        ("failOnDataLoss=false", plans.loss_skipped_by_the_reader, stories.expired, r"^missing: "),
        (
            "read_uncommitted",
            plans.read_uncommitted,
            stories.first_day,
            r"^foreign: .* its producer says: aborted",
        ),
        (
            "the last record of a piece is cut",
            plans.tail_cut,
            stories.first_day,
            r"^missing: events\[",
        ),
        (
            "deduplicated by content",
            plans.deduplicated_by_content,
            stories.first_day,
            r"^missing: events\[",
        ),
        (
            "values shifted by one record",
            plans.values_shifted,
            stories.first_day,
            r"^payload: events\[.* sent was",
        ),
    )
}
