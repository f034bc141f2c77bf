"""Checks the store of a lake: access, the clock, conditional writes, and what the bucket does with objects by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.operations.doctor.check import Area, DoctorCheck
from tallystick.store import Store
from tallystick.store.bucket import BucketAnswer, S3Bucket, ServerTime
from tallystick.store.probe import prove_conditional_writes

SKEW_WARNING, SKEW_ERROR = timedelta(seconds=60), timedelta(seconds=300)
NONCURRENT_DAYS_MIN = 7
# Objects of these classes must be restored before they can be read.
_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_ALLOW = "allow {} to this user to check it."
Rule = Mapping[str, Any]


def area_of(uri: str) -> Area:
    """Return the area of a lake's store."""
    return Area(f"store {uri}")


def bucket_checks(bucket: S3Bucket, now: Callable[[], datetime]) -> Iterator[DoctorCheck]:
    """Yield the checks of a bucket. If it cannot be listed, the first one is the last one: the others would fail, too."""
    area = area_of(bucket.uri)
    credentials = bucket.credentials()
    try:
        time = bucket.time(now)
    except TallystickError as error:
        yield area.of_error("access", error)
        return
    method = credentials or "no source"
    yield area.ok("access", f"{bucket.endpoint_url} lists the prefix; credentials from {method}")
    yield clock_check(area, time)
    for name, check, request in (
        ("versioning", versioning_check, "get_bucket_versioning"),
        ("lifecycle", None, "get_bucket_lifecycle_configuration"),
        ("public access", public_access_check, "get_public_access_block"),
        ("encryption", None, "get_bucket_encryption"),
        ("region", None, "head_bucket"),
    ):
        try:
            answer = bucket.setting(request)
        except TallystickError as error:
            yield area.unknown(name, error.message, error.hint)
            continue
        if check is not None:
            yield check(area, answer)
        elif name == "lifecycle":
            yield from lifecycle_checks(area, answer, bucket.prefix)
        elif name == "encryption":
            yield encryption_check(area, answer, bucket.encryption)
        else:
            yield region_check(area, answer, bucket.region)
    yield owner_check(area, bucket.owner, bucket.endpoint_url)


def writes_check(store: Store, *, write: bool, new_id: Callable[[], str]) -> DoctorCheck:
    """Check conditional writes on scratch objects, only if `write`. Safe to repeat: the objects have fresh keys."""
    area, name = area_of(store.uri), "conditional writes"
    if not write:
        return area.info(
            name,
            "not tested: that writes scratch objects",
            "test them with --write, once per store.",
        )
    try:
        proven = prove_conditional_writes(store, scratch=keys.probe(new_id()))
    except TallystickError as error:
        return area.of_error(name, error)
    left = f"; {proven.scratch} could not be deleted" if proven.scratch_left else ""
    return area.ok(name, f"{len(proven.steps)} steps passed{left}")


def clock_check(area: Area, time: ServerTime | None) -> DoctorCheck:
    """Check this machine's clock against the server's: from 15 minutes on, S3 refuses signatures."""
    if time is None:
        return area.unknown(
            "clock", "the server sends no Date", "compare this machine's clock with another one."
        )
    apart = timedelta(seconds=abs(time.ahead_s))
    side = "ahead of" if time.ahead_s > 0 else "behind"
    found = f"this machine's clock is {apart.total_seconds():,.0f} s {side} the server's"
    fix = "set the clock of this machine (NTP): S3 refuses requests from 900 s on."
    if apart > SKEW_ERROR:
        return area.error("clock", found, fix)
    if apart > SKEW_WARNING:
        return area.warning("clock", found, fix)
    return area.ok("clock", found)


# ---------------------------------------------------------------- settings of the bucket


def _unknown(area: Area, name: str, answer: BucketAnswer, right: str) -> DoctorCheck | None:
    """Return the check of an answer without a body; None if there is one, or if nothing is set."""
    if answer.missing == "denied":
        return area.unknown(name, f"{right} is denied", _ALLOW.format(right))
    if answer.missing == "not implemented":
        return area.ok(name, "the server has no such setting")
    return None


def versioning_check(area: Area, answer: BucketAnswer) -> DoctorCheck:
    """Check that versions of objects are kept: only the root records which rows are committed."""
    name = "versioning"
    if (check := _unknown(area, name, answer, "s3:GetBucketVersioning")) is not None:
        return check
    status = answer.body.get("Status")
    if status == "Enabled":
        return area.ok(name, "on")
    return area.info(
        name,
        f"{'suspended' if status else 'off'}: a root that is overwritten or deleted by mistake cannot be restored",
        "switch on versioning of the bucket, and let noncurrent versions expire after some weeks.",
    )


def lifecycle_checks(area: Area, answer: BucketAnswer, prefix: str) -> Iterator[DoctorCheck]:
    """Yield an error for each rule that deletes or archives objects of the lake, and otherwise one check."""
    name = "lifecycle"
    check = _unknown(area, name, answer, "s3:GetLifecycleConfiguration")
    if check is not None:
        yield check
        return
    found = list(_rules_against(answer.body.get("Rules", ()), prefix))
    for rule, what in found:
        yield area.error(
            name,
            f"rule {rule.get('ID', 'without an ID')!r} {what} objects below {prefix}/",
            "restrict the rule to other prefixes: only `tally gc` may delete objects of a lake.",
        )
    for rule in _applying(answer.body.get("Rules", ()), prefix):
        days = rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays")
        if days is not None and days < NONCURRENT_DAYS_MIN:
            yield area.info(
                name,
                f"rule {rule.get('ID', 'without an ID')!r} deletes noncurrent versions after {days} d",
                "keep them for some weeks, to be able to restore a root.",
            )
    if not found:
        yield area.ok(name, "no rule deletes or archives objects of the lake")


def _applying(rules: Iterable[Rule], prefix: str) -> Iterator[Rule]:
    """Yield the rules that are switched on and apply to keys of the lake, which have no tags."""
    for rule in rules:
        of = rule.get("Filter") or {}
        both = of.get("And") or {}
        if rule.get("Status") != "Enabled" or "Tag" in of or both.get("Tags"):
            continue
        within = str(of.get("Prefix") or both.get("Prefix") or rule.get("Prefix") or "")
        # Scratch objects of probes may go.
        if within.startswith(f"{prefix}/.probe/"):
            continue
        if within.startswith(f"{prefix}/") or f"{prefix}/".startswith(within):
            yield rule


def _rules_against(rules: Iterable[Rule], prefix: str) -> Iterator[tuple[Rule, str]]:
    for rule in _applying(rules, prefix):
        expiration = rule.get("Expiration") or {}
        if "Days" in expiration:
            yield rule, f"deletes after {expiration['Days']} d"
        elif "Date" in expiration:
            yield rule, f"deletes from {expiration['Date']:%Y-%m-%d} on"
        for transition in rule.get("Transitions") or ():
            if transition.get("StorageClass") in _ARCHIVES:
                yield rule, f"moves to {transition['StorageClass']}, which cannot be read at once,"


def public_access_check(area: Area, answer: BucketAnswer) -> DoctorCheck:
    """Check that the bucket blocks public access."""
    name, fix = "public access", "block public access of the bucket, unless the account blocks it."
    if (check := _unknown(area, name, answer, "s3:GetBucketPublicAccessBlock")) is not None:
        return check
    if answer.missing == "not set":
        return area.info(name, "the bucket itself does not block it", fix)
    blocks = answer.body.get("PublicAccessBlockConfiguration", {})
    off = sorted(key for key, value in blocks.items() if value is False)
    if off:
        return area.warning(name, f"not blocked: {', '.join(off)}", fix)
    return area.ok(name, "blocked")


def encryption_check(area: Area, answer: BucketAnswer, requested: str | None) -> DoctorCheck:
    """Check the encryption of new objects: what each write requests, otherwise the default of the bucket."""
    name = "encryption"
    if requested is not None:
        return area.ok(name, f"{requested}, which each write requests")
    if (check := _unknown(area, name, answer, "s3:GetEncryptionConfiguration")) is not None:
        return check
    rules = answer.body.get("ServerSideEncryptionConfiguration", {}).get("Rules", ())
    kinds = [
        rule["ApplyServerSideEncryptionByDefault"].get("SSEAlgorithm", "")
        for rule in rules
        if "ApplyServerSideEncryptionByDefault" in rule
    ]
    if not kinds:
        return area.info(
            name,
            "the bucket has no default encryption",
            "set one, or TALLYSTICK_S3_ENCRYPTION for all processes.",
        )
    return area.ok(name, f"{kinds[0]}, the default of the bucket")


def region_check(area: Area, answer: BucketAnswer, signed: str) -> DoctorCheck:
    """Check that requests are signed for the bucket's region, if the server returns it."""
    headers = answer.body.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.body.get("BucketRegion") or headers.get("x-amz-bucket-region")
    if not region or region == signed:
        return area.ok("region", signed)
    return area.warning(
        "region",
        f"expected the bucket's region {region}, found {signed}: each first request is redirected",
        f"set AWS_DEFAULT_REGION={region} for all processes.",
    )


def owner_check(area: Area, owner: str | None, endpoint: str) -> DoctorCheck:
    """Check that requests name the bucket's owner, on AWS: another account could own a bucket of that name."""
    if owner is not None:
        return area.ok("owner", f"account {owner}, which each request requires")
    if not endpoint.removesuffix("/").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return area.ok("owner", "not required, and the server is not AWS")
    return area.info(
        "owner",
        "requests do not name the bucket's account",
        "set TALLYSTICK_S3_BUCKET_OWNER, so that a bucket of another account is refused.",
    )
