"""Mutants of tallystick: each patches the product so that one rule no longer holds, and the oracle must detect it.

If tallystick's own checks (before a swap, of a report) would stop a mutant, they are switched off in it: the test is of
the oracle, not of these checks. `MUTANTS` has for each the scenario that exposes it and a pattern of the problem that
the oracle must report.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from oracle import mutants_of_commits as commits
from oracle import mutants_of_plans as plans
from oracle import scenarios
from oracle.scenarios import Scenario

Mutant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedProblem:
    """A mutant, the scenario that exposes it, and a pattern of one counter-example that the oracle must report."""

    mutant: Mutant
    scenario: Scenario
    pattern: str


MUTANTS: dict[str, ExpectedProblem] = {
    name: ExpectedProblem(mutant=mutant, scenario=scenario, pattern=pattern)
    for name, mutant, scenario, pattern in (
        (
            "no If-Match",
            commits.no_if_match,
            scenarios.raced,
            r"^acknowledged: the commit of plans/.* in no record",
        ),
        (
            "blind retry of a swap in doubt",
            commits.blind_retry,
            scenarios.reply_lost,
            r"^acknowledged: the commit of plans/",
        ),
        (
            "files deleted on a timeout",
            commits.delete_on_timeout,
            scenarios.reply_lost,
            r"^object: tables/.* does not exist",
        ),
        (
            "409 counts as a lost race",
            commits.conflict_counts_as_lost,
            scenarios.conflict_reply,
            r"^object: tables/.* does not exist",
        ),
        (
            "pointer before data",
            commits.pointer_before_data,
            scenarios.first_day,
            r"^snapshot: version \d+: table .* in the store it is None",
        ),
        (
            "AlreadyCommitted is never returned",
            commits.never_already_committed,
            scenarios.first_day,
            r"^duplicate: events\[",
        ),
        (
            "a zombie's plan commits",
            commits.zombie_commits,
            scenarios.taken_over,
            r"^duplicate: events\[",
        ),
        (
            "a replacement only appends",
            commits.replacement_appends,
            scenarios.replaced,
            r"^duplicate: events\[",
        ),
        (
            "the files come from a LIST, not from the report",
            commits.report_from_a_list,
            scenarios.attempts,
            r"^duplicate: events\[",
        ),
        (
            "attempts share a prefix",
            commits.shared_prefix,
            scenarios.attempts,
            r"^object: .* it was overwritten",
        ),
        (
            "dead letters are not committed",
            commits.dead_letters_not_committed,
            scenarios.first_day,
            r"^missing: events\[",
        ),
        (
            "dead letters are committed in another swap",
            commits.dead_letters_in_another_swap,
            scenarios.first_day,
            r"^snapshot: version \d+: table dead_letters",
        ),
        (
            "an aborted interval is skipped",
            commits.aborted_interval_skipped,
            scenarios.days,
            r"^acknowledged: the commit of plans/20130102",
        ),
        (
            "an empty interval is skipped",
            plans.empty_interval_skipped,
            scenarios.days,
            r"^tiling: after \[2013-01-03.* comes \[2013-01-05",
        ),
        (
            "the record chain is truncated",
            commits.chain_truncated,
            scenarios.days,
            r"^chain: record commits/0",
        ),
        (
            "end = high watermark",
            plans.ends_at_the_high_watermark,
            scenarios.days,
            r"^time: events\[",
        ),
        (
            "end = start, until the last interval",
            plans.ends_at_the_floor,
            scenarios.days,
            r"^time: events\[.* is in \[2013-01-05",
        ),
        ("boundaries move", plans.boundaries_move, scenarios.late, r"^missing: "),
        (
            "the end is read again while staging",
            plans.end_read_again,
            scenarios.late,
            r"^duplicate: ",
        ),
        (
            "the topic id is not checked",
            plans.topic_id_unchecked,
            scenarios.recreated,
            r"^payload: .* n is 2000000, sent was",
        ),
        (
            "a loss is accepted silently",
            plans.loss_accepted_silently,
            scenarios.expired,
            r"^account: .* are lost, and the plan does not accept",
        ),
        (
            "failOnDataLoss=false",
            plans.loss_skipped_by_the_reader,
            scenarios.expired,
            r"^missing: ",
        ),
        (
            "read_uncommitted",
            plans.read_uncommitted,
            scenarios.first_day,
            r"^foreign: .* in the producer's log: aborted",
        ),
        (
            "the last record of an input split is dropped",
            plans.last_record_dropped,
            scenarios.first_day,
            r"^missing: events\[",
        ),
        (
            "records are deduplicated by content",
            plans.deduplicated_by_content,
            scenarios.first_day,
            r"^missing: events\[",
        ),
        (
            "values are shifted by one record",
            plans.values_shifted,
            scenarios.first_day,
            r"^payload: events\[.* sent was",
        ),
        (
            "a plan of another partitioning commits",
            commits.other_partitioning_commits,
            scenarios.changed,
            r"^partition: tables/events/.* is of day .*, and has a row of",
        ),
        (
            "a renamed column is a new one",
            plans.renamed_column_is_new,
            scenarios.changed,
            r"^payload: events\[.*: n is None, sent was",
        ),
    )
}
