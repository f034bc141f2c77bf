"""The example `dedup`: the first alarm of each device within an hour, one e-mail per device, hours in any order."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import boto3

from examples.checks import CheckResult, run_check
from examples.dedup import check
from examples.dedup.mail import MailServer
from examples.runner.harness import PUBLISH, Harness, day
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.publisher_kill import KillResult

TOPIC, PARTITIONS = "examples-dedup", 3
# The alarms are generated, the same in each run.
SEED = 1
DEVICES, NEW_DEVICES = 30, 12
HOURS = 4
HOUR_MS, MINUTE_MS, SECOND_MS = 3_600_000, 60_000, 1_000
COPIES = 20
# The number of the e-mail in the killed interval that the server accepts, and whose 250 never arrives.
IN_DOUBT = 3
# The publisher waits four times as long for an e-mail in doubt. With less, a note could be late on a busy machine.
TIMEOUT_S = 5
# The publisher's hint: the e-mail, the note to copy and its target if it was sent. The log breaks lines at spaces.
IN_DOUBT_HINT = re.compile(
    r"Message-ID\s+<(?P<id>[^>]+)>.*?\bcopy\s+(?P<try>\S+)\s+to\s+(?P<sent>\S+?)[;,.]\s",
    re.DOTALL,
)


class Dedup:
    """Four hours of alarms: the third hour first, then the first two; the third again; the fourth with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.mail = MailServer()
        self.boundaries: list[datetime] = []
        self.replays: list[tuple[str, int]] = []

    def fill(self) -> int:
        """Send the alarms, an hour per transaction; before the third hour, copies in a transaction that is aborted."""
        smtp = {"host": "127.0.0.1", "port": self.mail.port, "security": "none"}
        self.harness.set_task_environment(
            TALLYSTICK_SMTP_DEFAULT=json.dumps({**smtp, "timeout_s": TIMEOUT_S})
        )
        batches: list[Batch] = []
        for hour, records in enumerate(alarms()):
            if hour == 2:
                batches.append(Batch(end="aborted", records=records[:COPIES]))
            batches.append(Batch(end="committed", records=records))
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run the third hour, which reads the second from Kafka; the first two; replace the third, and clear it."""
        third = self.harness.trigger(hour(2), hour(3))
        self.harness.wait_for_success(third)
        self.harness.log(f"the third hour ran first: {len(self.mail.log)} e-mails")
        self.harness.wait_for_success(self.harness.trigger(hour(0), hour(2)))
        self.boundaries = [hour(0), hour(2), hour(3)]
        before = len(self.mail.log)
        self.harness.wait_for_success(self.harness.trigger(hour(2), hour(3), mode="replace"))
        replaced = len(self.mail.log)
        self.replays.append(("mode=replace", replaced - before))
        self.harness.clear(third)
        self.replays.append(("a clear", len(self.mail.log) - replaced))

    def with_kill(self) -> KillResult:
        """Run the fourth hour: its publisher dies at the worst moment, when an e-mail is accepted and its 250 pending."""
        before = len(self.mail.log)

        def published() -> int:
            new = len(self.mail.log) - before
            return new if new >= IN_DOUBT else 0

        self.mail.withhold(IN_DOUBT)
        result = self.harness.kill_publisher(
            hour(3), hour(4), count_published=published, decide=self._decide
        )
        self.boundaries.append(hour(4))
        return result

    def check(self) -> CheckResult:
        """Check the table, and the mail server's log."""
        return run_check(
            lambda: check.compare(
                self.harness.open_lake().rows("alarms"),
                self.mail.log,
                self.harness.sent,
                boundaries=self.boundaries,
                replays=self.replays,
            )
        )

    def _decide(self, run_id: str) -> None:
        """Resolve an e-mail in doubt as a person does: search the mail server's log, and copy the note that applies."""
        log = self.harness.task_log(run_id, PUBLISH)
        hint = IN_DOUBT_HINT.search(log)
        if hint is None:
            self.harness.require(
                False, f"publish of {run_id}: found no hint about an e-mail in doubt: {log[-500:]}"
            )
            return
        accepted = any(mail.message_id == hint["id"] for mail in self.mail.log)
        self.harness.require(
            accepted, f"<{hint['id']}> is in doubt, and the mail server did not accept it"
        )
        self.harness.log("one e-mail is in doubt; it is in the mail server's log: recorded as sent")
        variables = self.harness.variables
        client = boto3.client(
            "s3",
            endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            region_name=variables["AWS_REGION"],
        )
        source, target = (
            hint[name].removeprefix("s3://").split("/", 1) for name in ("try", "sent")
        )
        client.copy_object(
            CopySource={"Bucket": source[0], "Key": source[1]}, Bucket=target[0], Key=target[1]
        )


def hour(number: int) -> datetime:
    """Return the start of an hour of 1 January 2013."""
    return day(1) + timedelta(hours=number)


def alarms() -> list[list[Record]]:
    """Return the alarms of each hour, in the order of arrival; some have the time of a clock that is behind."""
    chance = random.Random(SEED)
    found = sorted([*_random_alarms(chance), *_edge_cases()])
    hours: list[list[Record]] = [[] for _ in range(HOURS)]
    for arrival_ms, partition, behind_ms, device, what in found:
        value = {"device": device, "owner": f"owner-of-{device}@example.org", "what": what}
        record = Record(
            partition=partition,
            at_ms=_ms(arrival_ms) - behind_ms,
            value=json.dumps(value),
            key=device,
        )
        hours[arrival_ms // HOUR_MS].append(record)
    return hours


Alarm = tuple[int, int, int, str, str]


def _random_alarms(chance: random.Random) -> Iterator[Alarm]:
    """Yield repeated alarms of devices, to random partitions; some devices only in the last hour."""
    for number in range(DEVICES + NEW_DEVICES):
        first, last = (0, HOURS - 1) if number < DEVICES else (HOURS - 1, HOURS)
        at_ms = chance.randrange(first * HOUR_MS, last * HOUR_MS)
        while at_ms < HOURS * HOUR_MS:
            behind_ms = chance.randrange(90 * SECOND_MS) if chance.random() < 0.1 else 0
            what = chance.choice(["too hot", "cover open", "no signal"])
            yield (at_ms, chance.randrange(PARTITIONS), behind_ms, f"device-{number:02}", what)
            at_ms += round(chance.expovariate(1 / (15 * MINUTE_MS))) + 1


def _edge_cases() -> Iterator[Alarm]:
    """Yield the alarms that a millisecond or the order of the log decides."""
    ten_past_one = HOUR_MS + 10 * MINUTE_MS
    yield (ten_past_one, 0, 0, "just-an-hour", "stays")
    yield (ten_past_one + HOUR_MS, 1, 0, "just-an-hour", "stays, too")
    yield (ten_past_one + 1, 0, 0, "not-quite", "stays")
    yield (ten_past_one + HOUR_MS, 1, 0, "not-quite", "goes")
    yield (2 * HOUR_MS - 1, 1, 0, "across", "stays")
    yield (2 * HOUR_MS + 30 * MINUTE_MS, 2, 0, "across", "goes")
    # Dropped alarms count as seen: a device without a pause of an hour is kept once.
    for number in range(8):
        yield (number * 29 * MINUTE_MS + 7, number % PARTITIONS, 0, "restless", f"number {number}")
    for partition in range(PARTITIONS):
        yield (2 * HOUR_MS + 40 * MINUTE_MS, partition, 0, "at-once", f"partition {partition}")


def _ms(since_ms: int) -> int:
    return round(day(1).timestamp() * 1000) + since_ms
