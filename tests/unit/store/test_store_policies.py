"""The policies of docs/how-to/set-up-s3.md allow what our clients ask for, and no more."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tallystick.format import keys

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "set-up-s3.md"
PREFIXES = (
    keys.LEDGER_PREFIX,
    keys.COMMITS_PREFIX,
    keys.PLANS_PREFIX,
    keys.ATTEMPTS_PREFIX,
    keys.SCRATCH_PREFIX,
    keys.TABLES_PREFIX,
)
OBJECTS = (keys.ROOT, *(f"{prefix}x" for prefix in PREFIXES))


def documents() -> list[Any]:
    """What the page shows as JSON, in its order."""
    return [*map(json.loads, re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL))]


def policies() -> dict[str, Any]:
    """The three policies in the order of the page."""
    found = [one for one in documents() if "Statement" in one]
    return dict(zip(("writer", "reader", "gc"), found, strict=True))


def allows(policy: Any, action: str, key: str) -> bool:
    for statement in policy["Statement"]:
        actions, resources = (
            [one] if isinstance(one := statement[name], str) else one
            for name in ("Action", "Resource")
        )
        named = (fnmatchcase(f"arn:aws:s3:::BUCKET/PREFIX/{key}", one) for one in resources)
        if statement["Effect"] == "Allow" and action in actions and any(named):
            return True
    return False


@pytest.mark.parametrize("who", ["writer", "reader", "gc"])
def test_everybody_reads_and_lists(who: str) -> None:
    policy = policies()[who]
    assert all(allows(policy, "s3:GetObject", key) for key in OBJECTS)
    (listing,) = (one for one in policy["Statement"] if one["Action"] == "s3:ListBucket")
    assert listing["Resource"] == "arn:aws:s3:::BUCKET"


def test_only_writers_write_and_the_probe_is_theirs() -> None:
    for who, policy in policies().items():
        may = [allows(policy, "s3:PutObject", key) for key in (*OBJECTS, ".probe/x")]
        assert set(may) == {who != "reader"}, who
        assert allows(policy, "s3:DeleteObject", ".probe/x") == (who != "reader"), who


def test_a_writer_of_data_files_may_abort_its_uploads_and_a_rule_drops_the_others() -> None:
    may = {
        who: allows(policy, "s3:AbortMultipartUpload", f"{keys.TABLES_PREFIX}x")
        for who, policy in policies().items()
    }
    assert may == {"writer": True, "reader": False, "gc": False}
    (rules,) = (one["Rules"] for one in documents() if "Rules" in one)
    (rule,) = rules
    assert rule.pop("AbortIncompleteMultipartUpload") == {"DaysAfterInitiation": 1}
    assert rule.pop("Filter") == {"Prefix": "PREFIX/"}
    assert rule.keys() == {"ID", "Status"}, "a rule that does more could delete a lake's objects"


def test_a_writer_deletes_nothing_of_a_lake_and_gc_never_the_root_or_a_record() -> None:
    found = policies()
    for key in OBJECTS:
        assert not allows(found["writer"], "s3:DeleteObject", key)
        assert not allows(found["reader"], "s3:DeleteObject", key)
        kept = key == keys.ROOT or key.startswith(keys.COMMITS_PREFIX)
        assert allows(found["gc"], "s3:DeleteObject", key) != kept, key
