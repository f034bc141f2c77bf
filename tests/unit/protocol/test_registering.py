"""The registrations of a lake: what is pending, what a swap may change, and when a pointer may be set."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.format.registrations import Registration
from tallystick.format.root import Root
from tallystick.protocol.registering import (
    Advance,
    Ahead,
    Create,
    Foreign,
    Same,
    pending,
    pointer_step,
    readable_from,
    registration_problems,
    with_declared,
    with_registered,
)
from unit.format.samples import SAMPLE_ROOT, uuid

R2, R3, R4, R5 = (keys.record(number, uuid(number)) for number in (2, 3, 4, 5))
NEW = Registration(target="sql:default/company/flights", since=R2)
DONE = replace(NEW, registered=R4)
LAKE = "s3://lakes/flights/tables"


def root(record: keys.RecordKey | None, **registrations: Registration) -> Root:
    """Return a root with registrations."""
    return replace(SAMPLE_ROOT, record=record, registrations=registrations)


def metadata(number: int, *, table: str = "flights", name: str = "a1b2") -> str:
    """Return the URI of a metadata file."""
    return f"{LAKE}/{table}/metadata/{number:05d}-{name}.metadata.json"


# ---------------------------------------------------------------- the state in the root


@pytest.mark.parametrize(
    ("of", "names"),
    [
        (root(R4), ()),
        (root(None, company=replace(NEW, since=None)), ()),
        (root(R4, company=NEW), ("company",)),
        (root(R4, company=DONE), ()),
        (root(R5, company=DONE), ("company",)),
        (root(R5, company=replace(DONE, declared=False)), ()),
        (root(R5, a=DONE, b=replace(NEW, registered=R5), c=NEW), ("a", "c")),
    ],
)
def test_a_declared_registration_is_pending_until_it_has_the_last_commit(
    of: Root, names: tuple[str, ...]
) -> None:
    assert pending(of) == names


def test_a_declaration_begins_new_registrations_and_leaves_the_others_alone() -> None:
    targets = {"company": NEW.target, "glue": "glue:default/default/flights"}
    found = with_declared({"company": DONE}, targets, R5)
    assert found == {
        "company": DONE,
        "glue": Registration(target="glue:default/default/flights", since=R5),
    }
    assert with_declared(found, targets, R5) == found


def test_a_registration_that_is_no_longer_declared_stays_and_is_not_pending() -> None:
    found = with_declared({"company": DONE}, {}, R5)
    assert found == {"company": replace(DONE, declared=False)}
    assert pending(root(R5, **found)) == ()


def test_a_registration_that_is_declared_again_begins_anew() -> None:
    """Its pointers were not kept up to date, and gc did not keep what they name."""
    found = with_declared({"company": replace(DONE, declared=False)}, {"company": NEW.target}, R5)
    assert found == {"company": replace(NEW, since=R5)}


@pytest.mark.parametrize("declared", [True, False])
def test_a_name_never_gets_another_target(declared: bool) -> None:
    with pytest.raises(InvalidPipeline, match=r"sql:default/company/flights as in the lake.*rest:"):
        with_declared(
            {"company": replace(DONE, declared=declared)}, {"company": "rest:default//x"}, R5
        )


@pytest.mark.parametrize(
    ("was", "record", "now"),
    [
        (NEW, R4, DONE),
        (DONE, R5, replace(DONE, registered=R5)),
        (DONE, R4, None),
        (DONE, R3, None),  # a publisher that is late
        (replace(DONE, declared=False), R5, None),
    ],
)
def test_the_registered_version_only_advances(
    was: Registration, record: keys.RecordKey, now: Registration | None
) -> None:
    wanted = None if now is None else {"company": now}
    assert with_registered({"company": was}, "company", record) == wanted


def test_a_registration_that_is_not_in_the_root_gets_no_version() -> None:
    assert with_registered({"company": NEW}, "other", R4) is None


@pytest.mark.parametrize(
    ("of", "version"),
    [
        (root(R5), None),
        (root(None, company=replace(NEW, since=None)), None),
        (root(R5, company=NEW), 2),
        (root(R5, company=DONE), 4),
        (root(R5, a=DONE, b=replace(NEW, since=R3)), 3),
        # Declared before the first commit, and never registered: a pointer may be at any version.
        (root(R5, a=DONE, b=replace(NEW, since=None)), 1),
        (root(R5, a=replace(NEW, declared=False)), None),
    ],
)
def test_all_versions_that_a_pointer_may_name_stay_readable(of: Root, version: int | None) -> None:
    assert readable_from(of) == version


CHANGES = [
    # (before, after, the problem or None)
    (root(R4, a=NEW), root(R5, a=NEW), None),
    (root(R4, a=NEW), root(R4, a=DONE), None),
    (root(R5, a=NEW), root(R5, a=DONE), None),
    (root(R4), root(R4, a=replace(NEW, since=R4)), None),
    (None, root(None, a=replace(NEW, since=None)), None),
    (root(R5, a=DONE), root(R5, a=replace(DONE, declared=False)), None),
    (
        root(R5, a=replace(DONE, declared=False)),
        root(R5, a=replace(NEW, since=R5)),
        None,
    ),
    (root(R4, a=NEW), root(R4), "registration a was .* and became none"),
    (root(R4, a=NEW), root(R4, a=replace(NEW, target="glue:x")), "a was .* and became glue:x"),
    (root(R4, a=NEW), root(R4, a=replace(NEW, since=R3)), "was declared at .*2-.* and became .*3-"),
    (root(R4, a=DONE), root(R4, a=replace(DONE, registered=R3)), "goes back from .*4-.* to .*3-"),
    (root(R4, a=DONE), root(R4, a=NEW), "goes back from .* to None"),
    (root(R4, a=DONE), root(R5, a=replace(DONE, registered=R5)), "which is later than .*4-"),
    (
        root(None, a=replace(NEW, since=None)),
        root(R4, a=replace(NEW, since=None, registered=R4)),
        "which is later than None",
    ),
    (root(R4), root(R4, a=NEW), "is declared at .*4-.*, but begins at .*2-"),
    (root(R4), root(R4, a=replace(DONE, since=R4)), "is declared at .*, but begins at"),
    (
        root(R5, a=replace(DONE, declared=False)),
        root(R5, a=DONE),
        "is declared at .*5-.*, but begins at",
    ),
    (root(R4), root(R4, a=replace(NEW, declared=False)), None),
]


@pytest.mark.parametrize(("before", "after", "problem"), CHANGES)
def test_each_change_against_the_rules_is_found(
    before: Root | None, after: Root, problem: str | None
) -> None:
    found = list(registration_problems(before, after))
    if problem is None:
        assert found == []
    else:
        (only,) = found
        assert re.search(problem, only), only


# ---------------------------------------------------------------- a pointer in the catalog


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (None, Create()),
        (metadata(7), Same()),
        (metadata(6), Advance(expected=metadata(6))),
        (metadata(0, name="z"), Advance(expected=metadata(0, name="z"))),
        (metadata(8), Ahead()),
        (metadata(100_000), Ahead()),
    ],
)
def test_a_pointer_of_the_same_table_is_advanced_and_never_set_back(
    found: str | None, step: object
) -> None:
    assert pointer_step(found, metadata(7)) == step


@pytest.mark.parametrize(
    "found",
    [
        metadata(6, table="other"),
        metadata(6).replace("s3://lakes", "s3://other"),
        metadata(6).replace("/flights/tables", "/flights/old/tables"),
        "s3://lakes/flights/tables/flights/metadata/v3.metadata.json",
        "s3://lakes/flights/tables/flights/metadata/deep/00006-a.metadata.json",
        "",
        metadata(7, name="other"),  # the root was set back, and another commit has that number now
    ],
)
def test_a_pointer_of_another_table_is_left_alone(found: str) -> None:
    step = pointer_step(found, metadata(7))
    assert isinstance(step, Foreign)
    assert found in step.why


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_two_publishers_agree_on_the_later_pointer(one: int, other: int) -> None:
    """Whichever comes second, the pointer ends at the later version."""
    first, second = metadata(one), metadata(other)
    ends = {
        last if isinstance(pointer_step(before, last), Advance | Same) else before
        for before, last in ((first, second), (second, first))
    }
    assert ends == {metadata(max(one, other))}
