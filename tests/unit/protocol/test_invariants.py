"""Each invariant is checked: a swap that breaks it is refused by its name, and valid swaps pass."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tallystick.format import keys
from tallystick.format.columns import FormerName, TableColumn
from tallystick.format.compaction import CompactionGrant
from tallystick.format.offsets import Position
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Boundary, Entry
from tallystick.format.report import RangeAccount, mostly_dead
from tallystick.format.root import Closed, Root, RootTable, RootTopic, first_root
from tallystick.protocol.invariants import (
    InvariantError,
    account_problem,
    check_pages,
    check_swap,
)
from tallystick.protocol.ledger import Ledger
from unit.format.samples import (
    COLUMNS,
    SAMPLE_ACCOUNTS,
    SAMPLE_PLAN,
    SAMPLE_ROOT,
    at,
    boundary,
    committed,
    entry,
    granted,
    plan_key,
    uuid,
)

TOPICS = {"t": RootTopic(topic_id="i", cluster_id="c", origins=(0,))}
BEFORE = replace(SAMPLE_ROOT, topics=TOPICS)
FLIGHTS = replace(BEFORE.tables["flights"], dropped=(), former_names=())


TO = TableColumn(id=9, name="to", type="string", required=False)
N = TableColumn(id=10, name="n", type="int", required=False)
ELEMENT = TableColumn(id=6, name="element", type="struct", required=True, fields=(TO, N))
LEGS = TableColumn(id=7, name="legs", type="list", required=False, fields=(ELEMENT,))


def legs(*fields: TableColumn) -> TableColumn:
    """Return the list of structs with these fields."""
    return replace(LEGS, fields=(replace(ELEMENT, fields=fields),))


def flights(**changes: Any) -> dict[str, RootTable]:
    """Return the root's tables, with a table of flights that has no history but these changes."""
    return {**BEFORE.tables, "flights": replace(FLIGHTS, **changes)}


def after(**changes: Any) -> Root:
    return replace(BEFORE, version=BEFORE.version + 1, id=uuid(99), **changes)


def ledger(*entries: Entry, offsets: tuple[int, ...] = (0, 10, 20, 30)) -> Ledger:
    out = Ledger((), {})
    for hour, offset in enumerate(offsets):
        out.set_boundary(boundary(hour, offset))
    for e in entries:
        out.put(e)
    return out


def without_boundary(stored: Ledger, hour: int) -> Ledger:
    """Return the ledger without the boundary at that hour. Only a defect could cause this."""
    del stored._boundaries[at(hour)]
    return stored


GRANTED = entry(0, 1, grant=granted(0, 1))
COMMITTED = entry(0, 1, commit=committed(0, 1))


RECORD = keys.record(BEFORE.version + 1, uuid(6))


def recorded(**details: Any) -> Entry:
    """Return hour 0 as committed by the swap to `after(record=RECORD)`."""
    return entry(0, 1, commit=replace(committed(0, 1, **details), record=RECORD))


def test_a_renamed_pipeline_and_changed_columns_pass() -> None:
    renamed = after(pipeline="other", former_names=(*BEFORE.former_names, BEFORE.pipeline))
    check_swap(BEFORE, ledger(), renamed, ledger())
    changed = flights(
        columns=(
            TableColumn(id=1, name="place", type="string", required=False),
            TableColumn(id=3, name="gate", type="string", required=True),
        ),
        dropped=COLUMNS[1:],
        former_names=(FormerName(id=1, name="origin"),),
    )
    before = replace(BEFORE, tables=flights())
    check_swap(before, ledger(), after(tables=changed), ledger())
    later = replace(after(tables=changed), version=BEFORE.version)
    relaxed = replace(later, version=after().version, id=uuid(98))
    check_swap(later, ledger(), relaxed, ledger())


def test_valid_swaps_of_intervals_pass() -> None:
    check_swap(None, ledger(), first_root("flights", uuid(1)), ledger())
    check_swap(BEFORE, ledger(), after(), ledger(GRANTED))
    commits = after(record=RECORD)
    check_swap(BEFORE, ledger(GRANTED), commits, ledger(recorded()))
    pending = entry(0, 1, grant=granted(0, 1, generation=2), commit=committed(0, 1))
    check_swap(BEFORE, ledger(COMMITTED), after(), ledger(pending))
    check_swap(BEFORE, ledger(pending), commits, ledger(recorded(generation=2)))
    check_swap(BEFORE, ledger(), commits, ledger(recorded(records=0)))
    grown = {"t": replace(TOPICS["t"], origins=(0, 5))}
    check_swap(BEFORE, ledger(), after(topics=grown), ledger())


OUTPUTS = {"feed": "kafka:default/feed"}
WITH_OUTPUT = replace(BEFORE, outputs=OUTPUTS)


def with_slot(slot: OutputSlot, **details: Any) -> Entry:
    """Return hour 0, already committed, with this slot of the output `feed`."""
    return replace(COMMITTED, outputs={"feed": slot}, **details)


def test_valid_swaps_of_an_output_pass() -> None:
    check_swap(BEFORE, ledger(), after(outputs=OUTPUTS), ledger())
    wanted, in_progress = (
        OutputSlot(wanted=uuid(1)),
        OutputSlot(wanted=uuid(1), in_progress=uuid(1)),
    )
    done = OutputSlot(wanted=uuid(1), published=uuid(1))
    commits = after(record=RECORD, outputs=OUTPUTS)
    check_swap(
        WITH_OUTPUT, ledger(GRANTED), commits, ledger(replace(recorded(), outputs={"feed": wanted}))
    )
    for was, now in ((wanted, in_progress), (in_progress, done)):
        check_swap(
            WITH_OUTPUT, ledger(with_slot(was)), after(outputs=OUTPUTS), ledger(with_slot(now))
        )


CLOSED = {
    "t": replace(TOPICS["t"], closed=Closed(since=at(3), ends=(30,))),
    "t@2": RootTopic(topic_id="j", cluster_id="c", origins=(5,)),
}


def both_incarnations(hour: int) -> Ledger:
    """Return a ledger whose boundary at `hour` has positions of both incarnations."""
    out = ledger(offsets=(0, 10))
    positions = {"t": (Position(offset=30 if hour > 3 else 20),), "t@2": (Position(offset=6),)}
    out.set_boundary(Boundary(at=at(hour), positions=positions))
    return out


COMPACTION = keys.compaction("flights", uuid(70))
COMPACTION_GRANT = CompactionGrant(key=COMPACTION, granted_at=at(1))
COMPACTING = replace(BEFORE, compacting=(COMPACTION_GRANT,))
COMPACTED = after(record=RECORD, compacted=RECORD)


def moved(number: int = 70, **details: Any) -> Entry:
    """Return hour 0, already committed, with its rows in the shared files of a compaction."""
    named = {"flights": keys.CompactionId(uuid(number))}
    return replace(COMMITTED, committed=replace(committed(0, 1), compactions=named), **details)


def test_valid_swaps_of_a_compaction_pass() -> None:
    check_swap(BEFORE, ledger(), after(compacting=(COMPACTION_GRANT,)), ledger())
    check_swap(COMPACTING, ledger(COMMITTED), COMPACTED, ledger(moved()))
    again = replace(COMPACTING, compacting=(COMPACTION_GRANT,))
    check_swap(again, ledger(moved(71)), COMPACTED, ledger(moved()))
    pending = moved(granted=granted(0, 1, generation=2), generation=2)
    check_swap(BEFORE, ledger(moved()), after(), ledger(pending))
    replaced = recorded(generation=2)
    check_swap(BEFORE, ledger(pending), after(record=RECORD), ledger(replaced))


def test_an_adoption_passes() -> None:
    check_swap(BEFORE, ledger(), after(topics=CLOSED), ledger())
    adopted = replace(BEFORE, topics=CLOSED)
    check_swap(adopted, ledger(offsets=(0, 10)), after(topics=CLOSED), both_incarnations(4))


BROKEN: dict[str, tuple[Any, Any, Any, Any]] = {
    "I10: the first root": (None, ledger(), SAMPLE_ROOT, ledger()),
    "I10: version": (BEFORE, ledger(), replace(after(), version=9), ledger()),
    "I10: two roots share": (BEFORE, ledger(), replace(after(), id=BEFORE.id), ledger()),
    "I10: pipeline": (BEFORE, ledger(), after(pipeline="other"), ledger()),
    "I2: topic t changed": (BEFORE, ledger(), after(topics={}), ledger()),
    "I2: topic t changed its": (
        BEFORE,
        ledger(),
        after(topics={"t": replace(TOPICS["t"], topic_id="j")}),
        ledger(),
    ),
    "I2: an origin of topic t moved": (
        BEFORE,
        ledger(),
        after(topics={"t": replace(TOPICS["t"], origins=(1,))}),
        ledger(),
    ),
    "I2: topic t is closed, and its end moved": (
        replace(BEFORE, topics=CLOSED),
        ledger(),
        after(topics={**CLOSED, "t": replace(CLOSED["t"], closed=Closed(since=at(3), ends=(31,)))}),
        ledger(),
    ),
    r"I2: t\[0\] ended at 30": (
        BEFORE,
        ledger(offsets=(0, 31)),
        after(topics=CLOSED),
        ledger(offsets=(0, 31)),
    ),
    r"I2: t\[0\] ended at 30, the boundary": (
        BEFORE,
        ledger(offsets=(0, 10, 20, 20)),
        after(topics=CLOSED),
        ledger(offsets=(0, 10, 20, 20, 29)),
    ),
    r"I2: t@2\[0\] has offsets before": (
        replace(BEFORE, topics=CLOSED),
        ledger(offsets=(0, 10)),
        after(topics=CLOSED),
        both_incarnations(2),
    ),
    "I4: table flights vanished": (BEFORE, ledger(), after(tables={}), ledger()),
    "I4: table flights": (
        BEFORE,
        ledger(),
        after(
            tables={**BEFORE.tables, "flights": replace(BEFORE.tables["flights"], uuid=uuid(50))}
        ),
        ledger(),
    ),
    "I11: column id 2": (
        BEFORE,
        ledger(),
        after(
            tables={
                **BEFORE.tables,
                "flights": replace(
                    BEFORE.tables["flights"],
                    columns=(
                        COLUMNS[0],
                        TableColumn(id=2, name="delay", type="string", required=False),
                    ),
                ),
            }
        ),
        ledger(),
    ),
    "I11: column id 2 of flights was delay int$": (
        replace(BEFORE, tables=flights()),
        ledger(),
        after(tables=flights(columns=COLUMNS[:1])),
        ledger(),
    ),
    "I11: column id 2 of flights was delay": (
        replace(BEFORE, tables=flights()),
        ledger(),
        after(tables=flights(columns=(COLUMNS[0], replace(COLUMNS[1], name="wait")))),
        ledger(),
    ),
    "I11: column id 2 .* was optional and became required": (
        replace(BEFORE, tables=flights()),
        ledger(),
        after(tables=flights(columns=(COLUMNS[0], replace(COLUMNS[1], required=True)))),
        ledger(),
    ),
    "I11: column id 7 of flights was legs list<struct<to: optional string, n: optional int>>": (
        replace(BEFORE, tables=flights(columns=(LEGS,))),
        ledger(),
        after(tables=flights(columns=(legs(TO),))),
        ledger(),
    ),
    "I11: column id 7 of flights was legs list": (
        replace(BEFORE, tables=flights(columns=(LEGS,))),
        ledger(),
        after(tables=flights(columns=(legs(TO), N))),
        ledger(),
    ),
    "I11: column id 10 of flights was optional and became required": (
        replace(BEFORE, tables=flights(columns=(LEGS,))),
        ledger(),
        after(tables=flights(columns=(legs(TO, replace(N, required=True)),))),
        ledger(),
    ),
    "I11: the new column at of flights has the id 8": (
        replace(BEFORE, tables=flights(columns=(LEGS,))),
        ledger(),
        after(
            tables=flights(
                columns=(legs(TO, N, TableColumn(id=8, name="at", type="date", required=False)),)
            )
        ),
        ledger(),
    ),
    "I11: the new column gate of flights has the id 1, which is not new": (
        replace(BEFORE, tables=flights(columns=COLUMNS[1:])),
        ledger(),
        after(
            tables=flights(
                columns=(
                    COLUMNS[1],
                    TableColumn(id=1, name="gate", type="string", required=False),
                )
            )
        ),
        ledger(),
    ),
    "I11: a dropped column of flights came back": (
        replace(BEFORE, tables=flights(columns=COLUMNS[:1], dropped=COLUMNS[1:])),
        ledger(),
        after(tables=flights(columns=COLUMNS)),
        ledger(),
    ),
    "I11: a former name of a column of flights vanished": (
        replace(BEFORE, tables=flights(former_names=(FormerName(id=1, name="place"),))),
        ledger(),
        after(tables=flights()),
        ledger(),
    ),
    "I10: pipeline flights": (BEFORE, ledger(), after(former_names=("other",)), ledger()),
    "I10: the lake s3://a/b": (BEFORE, ledger(), after(uri="s3://a/b"), ledger()),
    "I1: entries": (
        BEFORE,
        ledger(),
        after(),
        ledger(entry(0, 2, grant=granted(0, 2)), entry(1, 3, grant=granted(1, 3))),
    ),
    "I4: committed entry": (BEFORE, ledger(COMMITTED), after(), ledger()),
    "I4: committed entry .* vanished": (BEFORE, ledger(COMMITTED), after(), ledger(GRANTED)),
    "I5: .* which has no grant": (BEFORE, ledger(), after(), ledger(COMMITTED)),
    "I5: .*, which has no grant": (
        BEFORE,
        ledger(replace(GRANTED, granted=replace(granted(0, 1), plan=plan_key(0, 1, 7)))),
        after(),
        ledger(COMMITTED),
    ),
    "I5: generation of": (
        BEFORE,
        ledger(entry(0, 1, grant=granted(0, 1, generation=3))),
        after(),
        ledger(entry(0, 1, grant=granted(0, 1, generation=2))),
    ),
    "I5: generation 1 would replace 1": (
        BEFORE,
        ledger(
            entry(
                0, 1, grant=replace(granted(0, 1), plan=plan_key(0, 1, 7)), commit=committed(0, 1)
            )
        ),
        after(),
        ledger(entry(0, 1, commit=replace(committed(0, 1), plan=plan_key(0, 1, 7)))),
    ),
    "I2: the boundary at": (BEFORE, ledger(), after(), ledger(offsets=(0, 11, 20, 30))),
    "I2: t.0. goes back": (BEFORE, Ledger((), {}), after(), ledger(offsets=(0, 10, 5, 30))),
    "I4: table flights lost its metadata": (
        BEFORE,
        ledger(),
        after(
            tables={**BEFORE.tables, "flights": replace(BEFORE.tables["flights"], metadata=None)}
        ),
        ledger(),
    ),
    "I10: nothing is committed, but the record": (BEFORE, ledger(), after(record=RECORD), ledger()),
    "I10: nothing is committed, but the record became None": (
        BEFORE,
        ledger(),
        after(record=None),
        ledger(),
    ),
    "I10: version 6 commits with the record commits/000000000004": (
        BEFORE,
        ledger(GRANTED),
        after(),
        ledger(recorded()),
    ),
    "I10: version 6 commits with the record None": (
        BEFORE,
        ledger(GRANTED),
        after(record=None),
        ledger(recorded()),
    ),
    "I10: .* names the record commits/000000000001": (
        BEFORE,
        ledger(GRANTED),
        after(record=RECORD),
        ledger(COMMITTED),
    ),
    "I12: output feed was kafka:default/feed and became None": (
        WITH_OUTPUT,
        ledger(),
        after(),
        ledger(),
    ),
    "I12: .* has rows for output feed, which the root does not have": (
        BEFORE,
        ledger(GRANTED),
        after(record=RECORD),
        ledger(replace(recorded(), outputs={"feed": OutputSlot(wanted=uuid(1))})),
    ),
    "I12: output feed of .* went from": (
        WITH_OUTPUT,
        ledger(with_slot(OutputSlot(wanted=uuid(1)))),
        after(outputs=OUTPUTS),
        ledger(with_slot(OutputSlot(wanted=uuid(1), published=uuid(1)))),
    ),
    "I12: output feed of .* vanished": (
        WITH_OUTPUT,
        ledger(with_slot(OutputSlot(wanted=uuid(1)))),
        after(outputs=OUTPUTS),
        ledger(COMMITTED),
    ),
    "I2: .* begins at no boundary": (
        BEFORE,
        Ledger((), {}),
        after(),
        without_boundary(ledger(GRANTED), 0),
    ),
}


COMPACTIONS_BROKEN: dict[str, tuple[Any, Any, Root, Any, str]] = {
    "published without a grant": (
        BEFORE,
        ledger(COMMITTED),
        COMPACTED,
        ledger(moved()),
        "without a grant",
    ),
    "published and still granted": (
        COMPACTING,
        ledger(COMMITTED),
        replace(COMPACTED, compacting=COMPACTING.compacting),
        ledger(moved()),
        "would keep its grant",
    ),
    "rows in a shared file at their commit": (
        COMPACTING,
        ledger(GRANTED),
        COMPACTED,
        ledger(
            entry(
                0,
                1,
                commit=replace(
                    committed(0, 1),
                    record=RECORD,
                    compactions={"flights": keys.CompactionId(uuid(70))},
                ),
            )
        ),
        "would be in a shared file at once",
    ),
    "totals changed": (
        COMPACTING,
        ledger(entry(0, 1, commit=committed(0, 1, records=2))),
        COMPACTED,
        ledger(moved()),
        "the commit of .* changed",
    ),
    "name lost": (BEFORE, ledger(moved()), after(), ledger(COMMITTED), "lost the name"),
    "grant changed with the move": (
        COMPACTING,
        ledger(COMMITTED),
        COMPACTED,
        ledger(moved(granted=granted(0, 1, generation=2), generation=2)),
        "changed when its rows were moved",
    ),
    "no record": (COMPACTING, ledger(COMMITTED), after(), ledger(moved()), "I10: version"),
    "an old record": (
        COMPACTING,
        ledger(COMMITTED),
        after(compacted=BEFORE.record),
        ledger(moved()),
        "I10: version",
    ),
    "another record than the root's": (
        COMPACTING,
        ledger(COMMITTED),
        after(compacted=RECORD),
        ledger(moved()),
        "would commit",
    ),
    "a record without moved rows": (
        BEFORE,
        ledger(),
        COMPACTED,
        ledger(),
        "no rows were moved",
    ),
    "a column changed with the move": (
        replace(COMPACTING, tables=flights()),
        ledger(COMMITTED),
        replace(COMPACTED, tables=flights(partition_by=())),
        ledger(moved()),
        "columns or partition rules",
    ),
    "an output changed with the move": (
        COMPACTING,
        ledger(COMMITTED),
        replace(COMPACTED, outputs=OUTPUTS),
        ledger(moved()),
        "topics or outputs",
    ),
    "moved by the first swap": (
        None,
        ledger(COMMITTED),
        replace(first_root("flights", uuid(1)), record=None),
        ledger(moved()),
        "without a grant",
    ),
}


@pytest.mark.parametrize("name", sorted(COMPACTIONS_BROKEN))
def test_a_swap_that_moves_rows_and_breaks_an_invariant_is_refused(name: str) -> None:
    before, ledger_before, changed, ledger_after, why = COMPACTIONS_BROKEN[name]
    with pytest.raises(InvariantError, match=why):
        check_swap(before, ledger_before, changed, ledger_after)


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_swap_that_breaks_an_invariant_is_refused(name: str) -> None:
    with pytest.raises(InvariantError, match=name):
        check_swap(*BROKEN[name])


def test_a_boundary_without_a_topic_means_its_origin() -> None:
    stored = Ledger((), {})
    stored.set_boundary(Boundary(at=at(0), positions={"t": (Position(offset=7),)}))
    stored.set_boundary(Boundary(at=at(1), positions={}))
    with pytest.raises(InvariantError, match=r"I2: .* goes back from 7 to 0"):
        check_swap(BEFORE, Ledger((), {}), after(), stored)


# ---------------------------------------------------------------- pages


def paged() -> tuple[Root, Ledger]:
    """Return a root with many pages, and a window on the first two."""
    whole = ledger(GRANTED)
    index, pages = whole.flush((uuid(n) for n in range(70, 80)), bytes_max=1)
    assert len(index) > 2
    return replace(BEFORE, pages=index), Ledger(index, {r.key: pages[r.key] for r in index[:2]})


def test_pages_that_match_the_decision_pass() -> None:
    before, window = paged()
    window.put(replace(GRANTED, generation=2))
    index, written = window.flush(uuid(n) for n in range(80, 90))
    check_pages(before, after(pages=index), window, written)


@pytest.mark.parametrize("lost", ["all", "unread"])
def test_a_page_that_vanishes_is_refused(lost: str) -> None:
    before, window = paged()
    remaining = before.pages[:2] if lost == "unread" else ()
    with pytest.raises(InvariantError, match=r"I4: page ledger/.* vanished"):
        check_pages(before, after(pages=remaining), window, {})


def test_pages_that_differ_from_the_decision_are_refused() -> None:
    before, window = paged()
    window.put(replace(GRANTED, generation=2))
    with pytest.raises(InvariantError, match=r"I4: the pages to write"):
        check_pages(before, after(pages=before.pages), window, {})


def test_a_root_that_is_wrong_about_what_is_pending_is_refused() -> None:
    """Publish reads only the pages that the root names as pending."""
    before, window = paged()
    window.put(replace(COMMITTED, outputs={"feed": OutputSlot(wanted=uuid(1))}))
    index, written = window.flush(uuid(n) for n in range(80, 90))
    pending_keys = tuple(
        ref.key for ref in index if ref.key in written and written[ref.key].pending
    )
    assert len(pending_keys) == 1
    publication = after(pages=index, outputs=OUTPUTS, pending=pending_keys)
    check_pages(before, publication, window, written)
    with pytest.raises(InvariantError, match=r"I12: the root is wrong about whether page ledger/"):
        check_pages(before, replace(publication, pending=()), window, written)
    reloaded = Ledger(index, written)
    following = replace(publication, version=publication.version + 1, id=uuid(98))
    check_pages(publication, following, reloaded, {})
    with pytest.raises(InvariantError, match=r"I12: the root is wrong about whether page ledger/"):
        check_pages(publication, replace(following, pending=()), reloaded, {})


# ---------------------------------------------------------------- accounts


def test_accounts_that_cover_the_plan_pass() -> None:
    assert account_problem(SAMPLE_PLAN, SAMPLE_ACCOUNTS) is None
    assert (
        account_problem(SAMPLE_PLAN, SAMPLE_ACCOUNTS[:1]) is None
    )  # the other range has no offset


FIRST, SECOND = SAMPLE_ACCOUNTS


@pytest.mark.parametrize(
    ("accounts", "why"),
    [
        ((), r"flights\[0\] is planned but has no account"),
        ((FIRST, FIRST), "has two accounts"),
        ((replace(FIRST, partition=7),), "is not planned"),
        ((replace(FIRST, end=9, records=5),), r"covers \[0, 9\), the plan \[0, 10\)"),
        (
            (replace(FIRST, lost=1, records=7),),
            "1 offsets are accounted as lost, the plan accepted 2",
        ),
        ((replace(FIRST, absent=1, records=5),), "absent from a topic that is not compacted"),
        ((FIRST, RangeAccount(topic="other", partition=0, start=0, end=0)), "is not planned"),
    ],
)
def test_accounts_that_do_not_cover_the_plan_are_named(accounts: Any, why: str) -> None:
    problem = account_problem(SAMPLE_PLAN, accounts)
    assert problem is not None
    assert re.search(why, problem), problem


def test_absent_offsets_are_allowed_if_the_topic_is_compacted() -> None:
    compacted = replace(SAMPLE_PLAN, topics=(replace(SAMPLE_PLAN.topics[0], compacted=True),))
    assert account_problem(compacted, (replace(FIRST, absent=1, records=5), SECOND)) is None


@pytest.mark.parametrize(
    ("records", "dead", "mostly"), [(0, 0, False), (5, 4, False), (5, 5, True), (0, 1, True)]
)
def test_half_dead_letters_count_as_mostly_dead(records: int, dead: int, mostly: bool) -> None:
    assert mostly_dead(records, dead) is mostly
