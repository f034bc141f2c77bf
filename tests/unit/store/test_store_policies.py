"""The policies of docs/how-to/set-up-s3.md allow the requests of each client, and no others."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tallystick.format import keys

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "set-up-s3.md"
# All that a lake has, so that a new kind of object cannot be forgotten here.
PREFIXES = tuple(
    prefix
    for name, prefix in sorted(vars(keys).items())
    if name.endswith("_PREFIX") and not prefix.startswith(keys.PROBE_PREFIX)
)
# gc deletes none of them, regardless of their age: `protocol/retention.py`.
KEPT = (keys.COMMITS_PREFIX, keys.CALLS_PREFIX)
OBJECTS = (keys.ROOT, *(f"{prefix}x" for prefix in PREFIXES))


def documents() -> list[Any]:
    """Return the JSON blocks of the page, in order."""
    return [*map(json.loads, re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL))]


def policies() -> dict[str, Any]:
    """Return the three policies in the order of the page."""
    with_statements = [document for document in documents() if "Statement" in document]
    return dict(zip(("writer", "reader", "gc"), with_statements, strict=True))


def allows(policy: Any, action: str, key: str) -> bool:
    for statement in policy["Statement"]:
        actions, resources = (
            [value] if isinstance(value := statement[name], str) else value
            for name in ("Action", "Resource")
        )
        matches = (
            fnmatchcase(f"arn:aws:s3:::BUCKET/PREFIX/{key}", pattern) for pattern in resources
        )
        if statement["Effect"] == "Allow" and action in actions and any(matches):
            return True
    return False


@pytest.mark.parametrize("role", ["writer", "reader", "gc"])
def test_every_policy_allows_read_and_list(role: str) -> None:
    policy = policies()[role]
    assert all(allows(policy, "s3:GetObject", key) for key in OBJECTS)
    (listing,) = (
        statement for statement in policy["Statement"] if statement["Action"] == "s3:ListBucket"
    )
    assert listing["Resource"] == "arn:aws:s3:::BUCKET"


def test_only_writer_and_gc_may_write_and_probe() -> None:
    for role, policy in policies().items():
        may = [allows(policy, "s3:PutObject", key) for key in (*OBJECTS, ".probe/x")]
        assert set(may) == {role != "reader"}, role
        assert allows(policy, "s3:DeleteObject", ".probe/x") == (role != "reader"), role


def test_a_writer_may_abort_its_uploads_and_a_rule_removes_the_others() -> None:
    may = {
        role: allows(policy, "s3:AbortMultipartUpload", f"{keys.TABLES_PREFIX}x")
        for role, policy in policies().items()
    }
    assert may == {"writer": True, "reader": False, "gc": False}
    (rules,) = (document["Rules"] for document in documents() if "Rules" in document)
    (rule,) = rules
    assert rule.pop("AbortIncompleteMultipartUpload") == {"DaysAfterInitiation": 1}
    assert rule.pop("Filter") == {"Prefix": "PREFIX/"}
    assert rule.keys() == {"ID", "Status"}, "a rule that does more could delete a lake's objects"


def test_a_writer_deletes_nothing_of_a_lake_and_gc_never_the_root_or_a_record() -> None:
    by_name = policies()
    for key in OBJECTS:
        assert not allows(by_name["writer"], "s3:DeleteObject", key)
        assert not allows(by_name["reader"], "s3:DeleteObject", key)
        protected = key == keys.ROOT or key.startswith(KEPT)
        assert allows(by_name["gc"], "s3:DeleteObject", key) != protected, key
