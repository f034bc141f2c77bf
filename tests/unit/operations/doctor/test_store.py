"""The checks of a bucket, each by its answer; and on moto, an S3 server in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tallystick.operations.doctor import store
from tallystick.operations.doctor.check import DoctorCheck, State
from tallystick.operations.doctor.store import (
    bucket_checks,
    clock_check,
    encryption_check,
    lifecycle_checks,
    owner_check,
    public_access_check,
    region_check,
    versioning_check,
    writes_check,
)
from tallystick.store.bucket import BucketAnswer, Missing, S3Bucket, ServerTime
from tallystick.store.memory import MemoryStore
from tallystick.store.s3 import S3Settings

URI = "s3://lake/flights"
AREA = store.area_of(URI)
AT = datetime(2024, 5, 1, tzinfo=UTC)


def answer(missing: Missing | None = None, /, **body: Any) -> BucketAnswer:
    return BucketAnswer(body=body, missing=missing)


# ---------------------------------------------------------------- clock


def clocks(ahead_s: float, *, took_s: float = 0.0) -> ServerTime:
    """Return the clocks of an answer in whose middle this machine was ahead of the middle of the server's second."""
    middle = AT + timedelta(seconds=0.5 + ahead_s)
    half = timedelta(seconds=took_s / 2)
    return ServerTime(server=AT, sent=middle - half, received=middle + half)


@pytest.mark.parametrize(
    ("ahead_s", "state", "text"),
    [
        (0, "ok", "0 s behind"),
        (59, "ok", "59 s ahead of"),
        (-60, "ok", "60 s behind"),
        (61, "warning", "61 s ahead of"),
        (-300, "warning", "300 s behind"),
        (301, "error", "301 s ahead of"),
        (-3_601, "error", "3,601 s behind"),
    ],
)
@pytest.mark.parametrize("took_s", [0.0, 8.0])
def test_a_clock_far_from_the_servers_is_a_warning_then_an_error(
    ahead_s: float, state: State, text: str, took_s: float
) -> None:
    check = clock_check(AREA, clocks(ahead_s, took_s=took_s))
    assert (check.state, check.found) == (state, f"this machine's clock is {text} the server's")


def test_without_a_date_the_clock_is_not_known() -> None:
    assert clock_check(AREA, None).state == "unknown"


# ---------------------------------------------------------------- lifecycle


def rule(status: str = "Enabled", **parts: Any) -> dict[str, Any]:
    return {"ID": "r", "Status": status, "Filter": {"Prefix": ""}, **parts}


EXPIRES = {"Expiration": {"Days": 30}}


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (rule(**EXPIRES), "rule 'r' deletes after 30 d objects below flights/"),
        (rule(Expiration={"Date": AT}), "rule 'r' deletes from 2024-05-01 on objects below"),
        (rule(Filter={"Prefix": "flights/"}, **EXPIRES), "deletes after 30 d"),
        (rule(Filter={"Prefix": "flights/tables/x"}, **EXPIRES), "deletes after 30 d"),
        (rule(Filter={"Prefix": "fli"}, **EXPIRES), "deletes after 30 d"),
        (
            rule(Filter={"And": {"Prefix": "flights/", "ObjectSizeGreaterThan": 1}}, **EXPIRES),
            "deletes",
        ),
        (rule(Filter={"ObjectSizeLessThan": 100}, **EXPIRES), "deletes"),
        ({"Status": "Enabled", "Prefix": "flights/", **EXPIRES}, "rule 'without an ID' deletes"),
        ({"ID": "r", "Status": "Enabled", **EXPIRES}, "deletes"),
        (rule(Transitions=[{"Days": 1, "StorageClass": "GLACIER"}]), "moves to GLACIER"),
        (rule(Transitions=[{"Days": 1, "StorageClass": "DEEP_ARCHIVE"}]), "moves to DEEP_ARCHIVE"),
    ],
)
def test_a_rule_that_takes_objects_of_the_lake_is_an_error(
    one: Mapping[str, Any], found: str
) -> None:
    (check,) = lifecycle_checks(AREA, answer(Rules=[one]), "flights")
    assert check.state == "error"
    assert found in check.found


@pytest.mark.parametrize(
    "one",
    [
        rule("Disabled", **EXPIRES),
        rule(Filter={"Prefix": "other/"}, **EXPIRES),
        rule(Filter={"Prefix": "flights2/"}, **EXPIRES),
        rule(Filter={"Prefix": "flights-old"}, **EXPIRES),
        rule(Filter={"Prefix": "flights/.probe/"}, **EXPIRES),
        rule(Filter={"Tag": {"Key": "a", "Value": "b"}}, **EXPIRES),
        rule(Filter={"And": {"Prefix": "", "Tags": [{"Key": "a", "Value": "b"}]}}, **EXPIRES),
        rule(Expiration={"ExpiredObjectDeleteMarker": True}),
        rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}),
        rule(NoncurrentVersionExpiration={"NoncurrentDays": 30}),
        rule(Transitions=[{"Days": 30, "StorageClass": "STANDARD_IA"}]),
    ],
)
def test_other_rules_are_ok(one: Mapping[str, Any]) -> None:
    (check,) = lifecycle_checks(AREA, answer(Rules=[one]), "flights")
    assert check.state == "ok"


def test_noncurrent_versions_that_go_soon_are_an_info() -> None:
    one = rule(NoncurrentVersionExpiration={"NoncurrentDays": 1})
    states = [c.state for c in lifecycle_checks(AREA, answer(Rules=[one]), "flights")]
    assert states == ["info", "ok"]


def test_each_rule_is_named() -> None:
    rules = [{**rule(**EXPIRES), "ID": name} for name in "ab"]
    found = [c.found[:8] for c in lifecycle_checks(AREA, answer(Rules=rules), "flights")]
    assert found == ["rule 'a'", "rule 'b'"]


# ---------------------------------------------------------------- other settings


def one_lifecycle(area: Any, found: BucketAnswer) -> DoctorCheck:
    (check,) = lifecycle_checks(area, found, "flights")
    return check


@pytest.mark.parametrize(
    ("check", "found", "state"),
    [
        (versioning_check, answer(Status="Enabled"), "ok"),
        (versioning_check, answer(Status="Suspended"), "info"),
        (versioning_check, answer(), "info"),
        (versioning_check, answer("denied"), "unknown"),
        (versioning_check, answer("not implemented"), "ok"),
        (one_lifecycle, answer("not set"), "ok"),
        (one_lifecycle, answer("denied"), "unknown"),
        (one_lifecycle, answer("not implemented"), "ok"),
        (
            public_access_check,
            answer(PublicAccessBlockConfiguration={"BlockPublicAcls": True}),
            "ok",
        ),
        (
            public_access_check,
            answer(
                PublicAccessBlockConfiguration={
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": False,
                }
            ),
            "warning",
        ),
        (public_access_check, answer("not set"), "info"),
        (public_access_check, answer("denied"), "unknown"),
        (public_access_check, answer("not implemented"), "ok"),
    ],
)
def test_a_setting_by_its_answer(check: Any, found: BucketAnswer, state: State) -> None:
    assert check(AREA, found).state == state


ENCRYPTED = answer(
    ServerSideEncryptionConfiguration={
        "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]
    }
)


@pytest.mark.parametrize(
    ("found", "requested", "state", "text"),
    [
        (ENCRYPTED, None, "ok", "aws:kms, the default of the bucket"),
        (ENCRYPTED, "AES256", "ok", "AES256, which each write requests"),
        (answer("not set"), "aws:kms", "ok", "aws:kms, which each write requests"),
        (answer("not set"), None, "info", "the bucket has no default encryption"),
        (answer("denied"), None, "unknown", "s3:GetEncryptionConfiguration is denied"),
        (answer("not implemented"), None, "ok", "the server has no such setting"),
    ],
)
def test_encryption_is_what_writes_request_or_the_default(
    found: BucketAnswer, requested: str | None, state: State, text: str
) -> None:
    check = encryption_check(AREA, found, requested)
    assert (check.state, check.found) == (state, text)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (answer(BucketRegion="eu-central-1"), "ok"),
        (answer(BucketRegion="us-east-1"), "warning"),
        (
            answer(ResponseMetadata={"HTTPHeaders": {"x-amz-bucket-region": "us-east-1"}}),
            "warning",
        ),
        (answer(), "ok"),
        (answer("denied"), "ok"),
    ],
)
def test_requests_are_signed_for_the_buckets_region(found: BucketAnswer, state: State) -> None:
    assert region_check(AREA, found, "eu-central-1").state == state


@pytest.mark.parametrize(
    ("owner", "endpoint", "state"),
    [
        ("123456789012", "https://s3.amazonaws.com", "ok"),
        (None, "https://s3.eu-central-1.amazonaws.com", "info"),
        (None, "https://s3.eu-central-1.amazonaws.com/", "info"),
        (None, "http://127.0.0.1:7070", "ok"),
    ],
)
def test_the_owner_of_a_bucket_on_aws_is_named(
    owner: str | None, endpoint: str, state: State
) -> None:
    assert owner_check(AREA, owner, endpoint).state == state


# ---------------------------------------------------------------- conditional writes


class Overwrites(MemoryStore):
    """A store that ignores the condition of a create."""

    def create(self, key: str, body: Any) -> Any:
        self.delete([key])
        return super().create(key, body)


@pytest.mark.parametrize(
    ("opened", "write", "state"),
    [
        (MemoryStore("a"), False, "info"),
        (MemoryStore("a"), True, "ok"),
        (Overwrites("a"), True, "error"),
        (Overwrites("a"), False, "info"),
    ],
)
def test_conditional_writes_are_tested_only_if_asked(
    opened: MemoryStore, write: bool, state: State
) -> None:
    check = writes_check(opened, write=write, new_id=lambda: "0" * 32)
    assert check.state == state
    assert list(opened.list("")) == []
    assert opened._writes == 0 or write


# ---------------------------------------------------------------- a server


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a client of moto with one bucket, and no settings of this machine."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-seen")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        made = boto3.client("s3")
        made.create_bucket(Bucket="lake")
        yield made


def examined(now: Any = lambda: datetime.now(UTC), uri: str = URI) -> dict[str, DoctorCheck]:
    found = list(bucket_checks(S3Bucket(uri, settings=S3Settings()), now))
    assert "not-to-be-seen" not in repr(found)
    return {check.name: check for check in found}


def test_a_bucket_as_created_has_no_error(client: Any) -> None:
    found = examined()
    assert {name: check.state for name, check in found.items()} == {
        "access": "ok",
        "clock": "ok",
        "versioning": "info",
        "lifecycle": "ok",
        "public access": "info",
        "encryption": found["encryption"].state,
        "region": "ok",
        "owner": "info",
    }
    assert "credentials from env" in found["access"].found


def test_a_bucket_that_is_set_up_is_ok(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client.put_bucket_versioning(Bucket="lake", VersioningConfiguration={"Status": "Enabled"})
    client.put_public_access_block(
        Bucket="lake",
        PublicAccessBlockConfiguration={
            "BlockPublicAcls": True,
            "IgnorePublicAcls": True,
            "BlockPublicPolicy": True,
            "RestrictPublicBuckets": True,
        },
    )
    client.put_bucket_encryption(
        Bucket="lake",
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        },
    )
    found = examined()
    assert [name for name, check in found.items() if check.state != "ok"] == ["owner"]


def test_a_rule_of_the_bucket_is_found(client: Any) -> None:
    client.put_bucket_lifecycle_configuration(
        Bucket="lake",
        LifecycleConfiguration={
            "Rules": [
                {
                    "ID": "tidy",
                    "Status": "Enabled",
                    "Filter": {"Prefix": "flights/tables/"},
                    "Expiration": {"Days": 90},
                }
            ]
        },
    )
    check = examined()["lifecycle"]
    assert (check.state, check.found) == (
        "error",
        "rule 'tidy' deletes after 90 d objects below flights/",
    )


def test_a_clock_that_is_ahead_is_found(client: Any) -> None:
    assert examined(lambda: datetime.now(UTC) + timedelta(seconds=400))["clock"].state == "error"


def test_without_the_bucket_only_access_is_checked(client: Any) -> None:
    found = examined(uri="s3://other-lake/flights")
    assert {name: check.state for name, check in found.items()} == {"access": "error"}
    assert "does not exist" in found["access"].found
