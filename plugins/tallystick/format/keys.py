"""Builds and parses all object keys and instants; no other module joins strings into keys.

    root.json
    ledger/<uuid>.json
    commits/<version, 12 digits>-<uuid>.json
    plans/<interval>/<uuid>.json
    claims/<interval>/<plan uuid>.json
    attempts/<interval>/<attempt>-<uuid>.json
    tables/<table>/metadata/...
    tables/<table>/data/<interval>/<plan uuid>/<attempt>/<task>-<uuid>.parquet
    tables/<table>/shared/<compaction uuid>/<task>-<uuid>.parquet
    tables/<table>/deletes/<uuid>.parquet
    compactions/<table>/<uuid>.json
    compactions/<table>/<compaction uuid>/<task>-<uuid>.parquet
    scratch/<interval>/<plan uuid>/<attempt>/<task>-<uuid>.parquet
    scratch/<interval>/<plan uuid>/<attempt>/<uuid>.json
    calls/<output>/<interval>/<plan uuid>/<first, 12 digits>-<end, 12 digits>.json
    calls/<output>/keys/<2 digits>/<40 digits>.<try, 3 digits>.try.json, .<try>.no.json, .sent.json

Keys are relative to the lake root. Uuids are 32 hexadecimal digits.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal, NewType

from tallystick.errors import InvalidPipeline

ROOT = "root.json"
LEDGER_PREFIX = "ledger/"
COMMITS_PREFIX = "commits/"
PLANS_PREFIX = "plans/"
CLAIMS_PREFIX = "claims/"
ATTEMPTS_PREFIX = "attempts/"
COMPACTIONS_PREFIX = "compactions/"
TABLES_PREFIX = "tables/"
SCRATCH_PREFIX = "scratch/"
CALLS_PREFIX = "calls/"
PROBE_PREFIX = ".probe/"
ROOM_PREFIX = f"{PROBE_PREFIX}room-"
LAKE_PREFIXES = (
    LEDGER_PREFIX,
    COMMITS_PREFIX,
    PLANS_PREFIX,
    CLAIMS_PREFIX,
    ATTEMPTS_PREFIX,
    COMPACTIONS_PREFIX,
    TABLES_PREFIX,
    SCRATCH_PREFIX,
    CALLS_PREFIX,
)
"""The prefixes of all objects of a lake other than its root. Scratch objects of a probe belong to no lake."""

PlanId = NewType("PlanId", str)
"""The uuid of a plan: 32 hexadecimal digits, the last part of its key."""
PlanKey = NewType("PlanKey", str)
"""A key of the form `plans/<interval>/<plan id>.json`."""
ClaimKey = NewType("ClaimKey", str)
"""A key of the form `claims/<interval>/<plan id>.json`."""
ReportKey = NewType("ReportKey", str)
"""A key of the form `attempts/<interval>/<attempt>-<uuid>.json`."""
CompactionId = NewType("CompactionId", str)
"""The uuid of a compaction: 32 hexadecimal digits, the last part of its key."""
CompactionKey = NewType("CompactionKey", str)
"""A key of the form `compactions/<table>/<compaction id>.json`."""
RecordKey = NewType("RecordKey", str)
"""A key of the form `commits/<version>-<uuid>.json`."""
PageKey = NewType("PageKey", str)
"""A key of the form `ledger/<uuid>.json`."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INCARNATION = re.compile(r"([a-zA-Z0-9._-]{1,249})@([1-9][0-9]{0,3})")
_UUID = re.compile(r"[0-9a-f]{32}")
_ATTEMPT = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_-]{0,63}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")
_PAGE = re.compile(r"ledger/[0-9a-f]{32}\.json")
_RECORD = re.compile(r"commits/(\d{12})-[0-9a-f]{32}\.json")
_INTERVAL_PART = r"\d{8}T\d{9}Z-\d{8}T\d{9}Z"
_PLAN = re.compile(rf"plans/({_INTERVAL_PART})/([0-9a-f]{{32}})\.json")
_CLAIM = re.compile(rf"claims/({_INTERVAL_PART})/([0-9a-f]{{32}})\.json")
_REPORT = re.compile(
    rf"attempts/({_INTERVAL_PART})/([0-9a-zA-Z][0-9a-zA-Z_-]{{0,63}})-[0-9a-f]{{32}}\.json"
)
_METADATA = re.compile(
    r"tables/([a-z0-9][a-z0-9_-]{0,62})/metadata/[0-9a-zA-Z][0-9a-zA-Z._-]{0,199}"
)
_DASHED_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# The files that PyIceberg and tallystick's staging write there; version-hint.text and the like come from other tools.
# The whole UUID matters: DuckDB writes `snap-<id>-<uuid>.avro`, without PyIceberg's number of the try between them, and
# the first eight digits of its UUID may all be decimal.
_WRITTEN_METADATA = re.compile(
    r"tables/[a-z0-9][a-z0-9_-]{0,62}/metadata/"
    rf"(?:[0-9]{{5,20}}-{_DASHED_UUID}\.metadata\.json|snap-[0-9]+-[0-9]+-{_DASHED_UUID}\.avro|"
    rf"{_DASHED_UUID}-m[0-9]+\.avro)"
)
_DATA = re.compile(
    rf"tables/([a-z0-9][a-z0-9_-]{{0,62}})/data/({_INTERVAL_PART})/([0-9a-f]{{32}})"
    r"/([0-9a-zA-Z][0-9a-zA-Z_-]{0,63})/[0-9a-z][0-9a-z_-]{0,63}-[0-9a-f]{32}\.parquet"
)
_SHARED = re.compile(
    r"tables/([a-z0-9][a-z0-9_-]{0,62})/shared/([0-9a-f]{32})/[0-9a-z][0-9a-z_-]{0,63}-[0-9a-f]{32}\.parquet"
)
_DELETES = re.compile(r"tables/([a-z0-9][a-z0-9_-]{0,62})/deletes/[0-9a-f]{32}\.parquet")
_COMPACTION = re.compile(r"compactions/([a-z0-9][a-z0-9_-]{0,62})/([0-9a-f]{32})\.json")
_ROW_ORDER = re.compile(
    r"compactions/([a-z0-9][a-z0-9_-]{0,62})/([0-9a-f]{32})/[0-9a-z][0-9a-z_-]{0,63}-[0-9a-f]{32}\.parquet"
)
_SCRATCH = re.compile(
    rf"scratch/({_INTERVAL_PART})/([0-9a-f]{{32}})/([0-9a-zA-Z][0-9a-zA-Z_-]{{0,63}})"
    r"/(?:[0-9a-z][0-9a-z_-]{0,63}-[0-9a-f]{32}\.parquet|[0-9a-f]{32}\.json)"
)
_CALLS = re.compile(
    rf"calls/([a-z0-9][a-z0-9_-]{{0,62}})/({_INTERVAL_PART})/([0-9a-f]{{32}})/(\d{{12}})-(\d{{12}})\.json"
)
_CALL = re.compile(
    r"calls/([a-z0-9][a-z0-9_-]{0,62})/keys/([0-9a-f]{2})/(\2[0-9a-f]{38})\.(?:(\d{3})\.(try|no)|sent)\.json"
)
_CALL_DIGITS = re.compile(r"[0-9a-f]{40}")
_PROBE = re.compile(r"\.probe/(?:[0-9a-f]{32}(?:-absent)?|room-[0-9a-f]{32})")

Kind = Literal[
    "root",
    "page",
    "record",
    "plan",
    "claim",
    "report",
    "metadata",
    "data file",
    "shared file",
    "deletes",
    "compaction",
    "row order",
    "scratch",
    "call",
    "probe",
    "foreign",
]
_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("data file", _DATA),
    ("shared file", _SHARED),
    ("deletes", _DELETES),
    ("compaction", _COMPACTION),
    ("row order", _ROW_ORDER),
    ("metadata", _WRITTEN_METADATA),
    ("scratch", _SCRATCH),
    ("page", _PAGE),
    ("record", _RECORD),
    ("plan", _PLAN),
    ("claim", _CLAIM),
    ("report", _REPORT),
    ("call", _CALLS),
    ("call", _CALL),
    ("probe", _PROBE),
)


def check_name(name: str, what: str) -> str:
    """Return a pipeline, table or connection name that is safe in keys; raises InvalidPipeline."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidPipeline(
            f"{what} name {name!r} is not allowed.",
            hint="use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or a digit.",
        )
    return name


def check_topic(name: str) -> str:
    """Return a topic name that Kafka itself would accept; raises InvalidPipeline (Topic.validate in Kafka)."""
    if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise InvalidPipeline(
            f"topic name {name!r} is not allowed.",
            hint="use Kafka's own rule: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'.",
        )
    return name


def check_incarnation(name: str) -> str:
    """Return a topic's name in the ledger: `events`, and `events@2` for the incarnation that was adopted after it.

    Kafka allows no @ in a topic's name, so the two forms cannot collide. Raises InvalidPipeline or ValueError if `name`
    is neither.
    """
    if "@" not in name or incarnation(name) > 1:
        check_topic(kafka_topic(name))
        return name
    raise ValueError(f"expected an incarnation of a topic, found {name!r}")


def kafka_topic(name: str) -> str:
    """Return Kafka's name of a ledger's topic: `events` for `events@2`."""
    return name.partition("@")[0]


def incarnation(name: str) -> int:
    """Return the incarnation number of a ledger's topic: 1 for `events`, 2 for `events@2`."""
    found = _INCARNATION.fullmatch(name)
    return int(found[2]) if found else 1


def previous_incarnation(name: str) -> str | None:
    """Return the incarnation before this one: `events` for `events@2`, None for `events`."""
    topic, number = kafka_topic(name), incarnation(name)
    return None if number == 1 else topic if number == 2 else f"{topic}@{number - 1}"


def next_incarnation(name: str) -> str:
    """Return the ledger's name of the incarnation after this one: `events@2` for `events`."""
    return f"{kafka_topic(name)}@{incarnation(name) + 1}"


def instant(at: datetime) -> str:
    """Format a UTC instant in whole milliseconds, e.g. `2013-01-01T05:00:00.000Z`; the texts sort as the times do."""
    return f"{check_instant(at).isoformat(timespec='milliseconds')[:23]}Z"


def parse_instant(text: str) -> datetime:
    """Parse the output of `instant`; raises ValueError on any other text."""
    if not _INSTANT.fullmatch(text):
        raise ValueError(f"expected an instant like 2013-01-01T05:00:00.000Z, found {text!r}")
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def check_instant(at: datetime) -> datetime:
    """Return an instant in UTC and whole milliseconds (Kafka's resolution); raises ValueError."""
    # A ledger has instants by the hundred thousand, all of this zone: the other checks take most of the time.
    if at.tzinfo is not UTC and (
        at.tzinfo is None or at.utcoffset() != at.tzinfo.utcoffset(None) or at.utcoffset()
    ):
        raise ValueError(f"expected an instant in UTC, found {at.isoformat()}")
    if at.microsecond % 1000:
        raise ValueError(f"expected whole milliseconds, found {at.isoformat()}")
    return at


def interval_part(start: datetime, end: datetime) -> str:
    """Format an interval as one part of a key, e.g. `20130101T000000000Z-20130102T000000000Z`."""
    return f"{_compact(start)}-{_compact(end)}"


def _compact(at: datetime) -> str:
    text = check_instant(at).isoformat(timespec="milliseconds")[:23]
    return f"{text.replace('-', '').replace(':', '').replace('.', '')}Z"


def page(uuid: str) -> PageKey:
    """Build the key of a ledger page."""
    return PageKey(f"{LEDGER_PREFIX}{_uuid(uuid)}.json")


def record(version: int, uuid: str) -> RecordKey:
    """Build the key of a commit record."""
    if not 0 <= version < 10**12:
        raise ValueError(f"expected a version, found {version}")
    return RecordKey(f"{COMMITS_PREFIX}{version:012d}-{_uuid(uuid)}.json")


def plan(start: datetime, end: datetime, uuid: str) -> PlanKey:
    """Build the key of a plan."""
    return PlanKey(f"{PLANS_PREFIX}{interval_part(start, end)}/{_uuid(uuid)}.json")


def claim(plan_key: str) -> ClaimKey:
    """Build the key of a plan's claim."""
    interval, uuid = plan_parts(plan_key)
    return ClaimKey(f"{CLAIMS_PREFIX}{interval}/{uuid}.json")


def claimed_report(plan_key: str, attempt: str) -> ReportKey:
    """Build the key of the report of an attempt that stages the plan of another run, which finds it by this key."""
    interval, uuid = plan_parts(plan_key)
    return ReportKey(f"{ATTEMPTS_PREFIX}{interval}/{check_attempt(attempt)}-{uuid}.json")


def report(start: datetime, end: datetime, attempt: str, uuid: str) -> ReportKey:
    """Build the key of an attempt's report."""
    part = interval_part(start, end)
    return ReportKey(f"{ATTEMPTS_PREFIX}{part}/{check_attempt(attempt)}-{_uuid(uuid)}.json")


def table_prefix(table: str) -> str:
    """Build the prefix of all objects of a table."""
    return f"{TABLES_PREFIX}{check_name(table, 'table')}/"


def metadata_prefix(table: str) -> str:
    """Build the prefix of a table's Iceberg metadata."""
    return f"{table_prefix(table)}metadata/"


def attempt_prefix(table: str, plan_key: str, attempt: str) -> str:
    """Build the prefix of one attempt's data files; readers see a file only once a root names it."""
    interval, uuid = plan_parts(plan_key)
    return f"{table_prefix(table)}data/{interval}/{uuid}/{check_attempt(attempt)}/"


def data_file(table: str, plan_key: str, attempt: str, task: str, uuid: str) -> str:
    """Build the key of one Parquet file of an attempt; the uuid is new for every upload."""
    key = f"{attempt_prefix(table, plan_key, attempt)}{task}-{_uuid(uuid)}.parquet"
    if not _DATA.fullmatch(key):
        raise ValueError(f"expected the key of a data file, found {key!r}")
    return key


def shared_prefix(table: str, compaction_id: str) -> str:
    """Build the prefix of the shared files of one compaction; readers see a file only once a root names it."""
    return f"{table_prefix(table)}shared/{_uuid(compaction_id)}/"


def shared_file(table: str, compaction_id: str, task: str, uuid: str) -> str:
    """Build the key of one Parquet file of a compaction; the uuid is new for every upload."""
    key = f"{shared_prefix(table, compaction_id)}{task}-{_uuid(uuid)}.parquet"
    return check_shared_file(key, table, compaction_id)


def deletes(table: str, uuid: str) -> str:
    """Build the key of a position delete file."""
    return f"{table_prefix(table)}deletes/{_uuid(uuid)}.parquet"


def compaction(table: str, uuid: str) -> CompactionKey:
    """Build the key of a compaction."""
    return CompactionKey(f"{COMPACTIONS_PREFIX}{check_name(table, 'table')}/{_uuid(uuid)}.json")


def row_order(table: str, compaction_id: str, task: str, uuid: str) -> str:
    """Build the key of the row order of one shared file; the uuid is new for every upload."""
    prefix = f"{COMPACTIONS_PREFIX}{check_name(table, 'table')}/{_uuid(compaction_id)}/"
    return check_row_order(f"{prefix}{task}-{_uuid(uuid)}.parquet", table, compaction_id)


def scratch_prefix(plan_key: str, attempt: str) -> str:
    """Build the prefix of one attempt's scratch, which only that attempt reads.

    No root, report or record ever names an object below it.
    """
    interval, uuid = plan_parts(plan_key)
    return f"{SCRATCH_PREFIX}{interval}/{uuid}/{check_attempt(attempt)}/"


def scratch_file(plan_key: str, attempt: str, task: str, uuid: str) -> str:
    """Build the key of one Parquet file of an attempt's scratch; the uuid is new for every upload."""
    return check_scratch(f"{scratch_prefix(plan_key, attempt)}{task}-{_uuid(uuid)}.parquet")


def scratch_list(plan_key: str, attempt: str, uuid: str) -> str:
    """Build the key of the list of an attempt's valid scratch files."""
    return check_scratch(f"{scratch_prefix(plan_key, attempt)}{_uuid(uuid)}.json")


def outcome(plan_key: str, attempt: str) -> str:
    """Build the key of the outcome of an attempt on a cluster; `plan_key` is the first of its plans."""
    return scratch_list(plan_key, attempt, plan_parts(plan_key)[1])


def calls_prefix(output: str, interval: str, uuid: str) -> str:
    """Build the prefix of an output's notes of one plan's acknowledged calls; `interval` is formatted as a key part."""
    return f"{CALLS_PREFIX}{check_name(output, 'output')}/{interval}/{_uuid(uuid)}/"


def calls(output: str, interval: str, uuid: str, first: int, end: int) -> str:
    """Build the key of the note that the calls `first <= number < end` of one plan are acknowledged."""
    key = f"{calls_prefix(output, interval, uuid)}{first:012d}-{end:012d}.json"
    if not _CALLS.fullmatch(key) or not first < end:
        raise ValueError(f"expected the key of a note of calls, found {key!r}")
    return key


def call_prefix(output: str, digits: str) -> str:
    """Build the prefix of the keys of all notes about one idempotency key; `digits` are its 40 digits."""
    if not _CALL_DIGITS.fullmatch(digits):
        raise ValueError(f"expected the 40 digits of an idempotency key, found {digits!r}")
    return f"{CALLS_PREFIX}{check_name(output, 'output')}/keys/{digits[:2]}/{digits}."


def call_try(output: str, digits: str, number: int) -> str:
    """Build the key of the note that try `number` (1, 2, ...) of a call is about to be made.

    The note of the first try also reserves the idempotency key.
    """
    return f"{call_prefix(output, digits)}{_try(number)}.try.json"


def call_no(output: str, digits: str, number: int) -> str:
    """Build the key of the note that the receiver certainly did not accept that try."""
    return f"{call_prefix(output, digits)}{_try(number)}.no.json"


def call_sent(output: str, digits: str) -> str:
    """Build the key of the note that the call is acknowledged."""
    return f"{call_prefix(output, digits)}sent.json"


def call_parts(key: str) -> tuple[Literal["try", "no", "sent"], int]:
    """Return (state, number of the try) of the key of a note of a call; the number is 0 for `sent`; raises ValueError."""
    found = _CALL.fullmatch(key)
    if not found:
        raise ValueError(f"expected the key of a note of a call, found {key!r}")
    if found[4] is None:
        return "sent", 0
    return "try" if found[5] == "try" else "no", int(found[4])


def _try(number: int) -> str:
    if not 1 <= number <= 999:
        raise ValueError(f"expected a try number from 1 to 999, found {number}")
    return f"{number:03d}"


def probe(uuid: str) -> str:
    """Build the key of the scratch object that probes if the store honours conditional writes."""
    return f"{PROBE_PREFIX}{_uuid(uuid)}"


def room(uuid: str) -> str:
    """Build the key of the marker by which a slow writer of the root makes publishers pause: scratch, below `.probe/`."""
    return f"{ROOM_PREFIX}{_uuid(uuid)}"


def plan_parts(key: str) -> tuple[str, PlanId]:
    """Return (interval part, plan id) of a plan's key; raises ValueError."""
    found = _PLAN.fullmatch(key)
    if not found:
        raise ValueError(f"expected the key of a plan, found {key!r}")
    return found[1], PlanId(found[2])


def plan_interval(key: str) -> tuple[datetime, datetime]:
    """Return (start, end) of the interval that a plan's key names; raises ValueError."""
    return part_interval(plan_parts(key)[0])


def part_interval(part: str) -> tuple[datetime, datetime]:
    """Return (start, end) of the output of `interval_part`; raises ValueError."""
    start, end = (
        datetime.strptime(f"{text[:-1]}000Z", "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
        for text in part.split("-")
    )
    return start, end


def record_version(key: str) -> int:
    """Return the root version that a commit record's key names; raises ValueError."""
    found = _RECORD.fullmatch(key)
    if not found:
        raise ValueError(f"expected the key of a commit record, found {key!r}")
    return int(found[1])


def check_page(key: str) -> PageKey:
    """Return a ledger page's key; raises ValueError."""
    if not _PAGE.fullmatch(key):
        raise ValueError(f"expected the key of a ledger page, found {key!r}")
    return PageKey(key)


def check_record(key: str) -> RecordKey:
    """Return a commit record's key; raises ValueError."""
    record_version(key)
    return RecordKey(key)


def check_plan(key: str) -> PlanKey:
    """Return a plan's key; raises ValueError."""
    plan_parts(key)
    return PlanKey(key)


def check_report(key: str) -> ReportKey:
    """Return a report's key; raises ValueError."""
    if not _REPORT.fullmatch(key):
        raise ValueError(f"expected the key of a report, found {key!r}")
    return ReportKey(key)


def check_metadata(key: str, table: str) -> str:
    """Return a key inside `table`'s metadata folder; raises ValueError: a root must name no metadata outside of it."""
    found = _METADATA.fullmatch(key)
    if not found or found[1] != table or ".." in key:
        raise ValueError(f"expected metadata of table {table!r}, found {key!r}")
    return key


def check_data_file(key: str, table: str) -> str:
    """Return a data file's key of `table`; raises ValueError."""
    found = _DATA.fullmatch(key)
    if not found or found[1] != table:
        raise ValueError(f"expected a data file of table {table!r}, found {key!r}")
    return key


def data_file_parts(key: str) -> tuple[str, str, str, str]:
    """Return (table, interval part, plan uuid, attempt) of a data file's key; raises ValueError."""
    found = _DATA.fullmatch(key)
    if not found:
        raise ValueError(f"expected the key of a data file, found {key!r}")
    return found[1], found[2], found[3], found[4]


def check_table_file(key: str, table: str) -> str:
    """Return the key of a data file or a shared file of `table`; raises ValueError."""
    found = _SHARED.fullmatch(key)
    if found and found[1] == table:
        return key
    return check_data_file(key, table)


def check_shared_file(key: str, table: str, compaction_id: str) -> str:
    """Return the key of a shared file of a compaction; raises ValueError."""
    found = _SHARED.fullmatch(key)
    if not found or (found[1], found[2]) != (table, compaction_id):
        raise ValueError(
            f"expected a shared file of compaction {compaction_id} of table {table!r}, found {key!r}"
        )
    return key


def shared_file_parts(key: str) -> tuple[str, CompactionId]:
    """Return (table, compaction id) of a shared file's key; raises ValueError."""
    found = _SHARED.fullmatch(key)
    if not found:
        raise ValueError(f"expected the key of a shared file, found {key!r}")
    return found[1], CompactionId(found[2])


def check_row_order(key: str, table: str, compaction_id: str) -> str:
    """Return the key of a row order of a compaction; raises ValueError."""
    if row_order_parts(key) != (table, compaction_id):
        raise ValueError(
            f"expected a row order of compaction {compaction_id} of table {table!r}, found {key!r}"
        )
    return key


def row_order_parts(key: str) -> tuple[str, CompactionId]:
    """Return (table, compaction id) of the key of a row order; raises ValueError."""
    found = _ROW_ORDER.fullmatch(key)
    if not found:
        raise ValueError(f"expected the key of a row order, found {key!r}")
    return found[1], CompactionId(found[2])


def compaction_parts(key: str) -> tuple[str, CompactionId]:
    """Return (table, compaction id) of a compaction's key; raises ValueError."""
    found = _COMPACTION.fullmatch(key)
    if not found:
        raise ValueError(f"expected the key of a compaction, found {key!r}")
    return found[1], CompactionId(found[2])


def check_compaction(key: str) -> CompactionKey:
    """Return a compaction's key; raises ValueError."""
    compaction_parts(key)
    return CompactionKey(key)


def plan_of_data_file(key: str) -> PlanKey:
    """Return the key of the plan whose attempt wrote a data file; raises ValueError."""
    _, part, uuid, _ = data_file_parts(key)
    return PlanKey(f"{PLANS_PREFIX}{part}/{uuid}.json")


def check_scratch(key: str) -> str:
    """Return the key of an object in an attempt's scratch; raises ValueError."""
    if not _SCRATCH.fullmatch(key):
        raise ValueError(f"expected a scratch object of an attempt, found {key!r}")
    return key


def kind(key: str) -> Kind:
    """Return the kind of an object below the lake root, from its key alone; `foreign` if tallystick never writes it."""
    if key == ROOT:
        return "root"
    return next((name for name, pattern in _KINDS if pattern.fullmatch(key)), "foreign")


def interval_of(key: str) -> tuple[str, str | None]:
    """Return (interval part, plan uuid) of the key of a plan, claim, report, data file or scratch object.

    The uuid of a report's key is None: it names no plan.
    Raises ValueError for any other key.
    """
    patterns = ((_PLAN, 1, 2), (_CLAIM, 1, 2), (_DATA, 2, 3), (_SCRATCH, 1, 2), (_REPORT, 1, None))
    for pattern, part, uuid in patterns:
        if found := pattern.fullmatch(key):
            return found[part], None if uuid is None else found[uuid]
    raise ValueError(f"expected the key of an interval's object, found {key!r}")


def check_attempt(attempt: str) -> str:
    """Return an attempt id that is safe in keys; raises ValueError."""
    if not _ATTEMPT.fullmatch(attempt):
        raise ValueError(f"expected an attempt id, found {attempt!r}")
    return attempt


def check_uuid(uuid: str) -> str:
    """Return 32 hexadecimal digits; raises ValueError."""
    return _uuid(uuid)


def _uuid(uuid: str) -> str:
    if not _UUID.fullmatch(uuid):
        raise ValueError(f"expected a uuid of 32 hexadecimal digits, found {uuid!r}")
    return uuid
