"""The example `dedup`: of each device's alarms the first within an hour, and one e-mail per device, in any order."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import boto3

from examples.checks import Ruling, ruling
from examples.dedup import check
from examples.dedup.mail import MailServer
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.scene import PUBLISH, Scene, day
from examples.runner.strike import Blow

TOPIC, PARTITIONS = "examples-dedup", 3
# The alarms are made up: by chance, the same at each play.
SEED = 1
DEVICES, NEW_DEVICES = 30, 12
HOURS = 4
HOUR_MS, MINUTE_MS, SECOND_MS = 3_600_000, 60_000, 1_000
COPIES = 20
# The e-mail of the struck interval that the server takes, and whose 250 never arrives.
IN_DOUBT = 3
# An e-mail in doubt is waited for four times as long; shorter, and a note on a busy machine would come too late for it.
TIMEOUT_S = 5
# What the publisher asks: which e-mail, and which note to copy where for either answer. The log breaks lines at spaces.
HELD = re.compile(
    r"Message-ID\s+<(?P<id>[^>]+)>.*?Where\s+it\s+was\s+taken,\s+copy\s+(?P<try>\S+)\s+to\s+(?P<sent>\S+);"
    r"\s+where\s+it\s+was\s+not,\s+copy\s+it\s+to\s+(?P<no>\S+)\.\s+Then",
    re.DOTALL,
)


class Dedup:
    """Four hours of alarms: the third one first, then the first two; the third again; the fourth under a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.mail = MailServer()
        self.edges: list[datetime] = []
        self.silent: list[tuple[str, int]] = []

    def fill(self) -> int:
        """The alarms, an hour per transaction; before the third one a transaction of copies that is aborted."""
        smtp = {"host": "127.0.0.1", "port": self.mail.port, "security": "none"}
        self.scene.tell_tasks(TALLYSTICK_SMTP_DEFAULT=json.dumps({**smtp, "timeout_s": TIMEOUT_S}))
        batches: list[Batch] = []
        for hour, records in enumerate(alarms()):
            if hour == 2:
                batches.append(Batch(end="aborted", records=records[:COPIES]))
            batches.append(Batch(end="committed", records=records))
        create_topic(self.scene.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.scene.kafka, TOPIC, batches, sent=self.scene.sent)

    def plain(self) -> None:
        """The third hour, which sees the second one in Kafka; the first two; the third again, and a clear of it."""
        third = self.scene.start(hour(2), hour(3))
        self.scene.green(third)
        self.scene.say(f"the third hour came first: {len(self.mail.log)} e-mails")
        self.scene.green(self.scene.start(hour(0), hour(2)))
        self.edges = [hour(0), hour(2), hour(3)]
        before = len(self.mail.log)
        self.scene.green(self.scene.start(hour(2), hour(3), mode="replace"))
        replaced = len(self.mail.log)
        self.silent.append(("mode=replace", replaced - before))
        self.scene.clear(third)
        self.silent.append(("a clear", len(self.mail.log) - replaced))

    def struck(self) -> Blow:
        """The fourth hour: its publisher dies where it hurts most, when an e-mail is taken and its 250 under way."""
        before = len(self.mail.log)

        def out() -> int:
            new = len(self.mail.log) - before
            return new if new >= IN_DOUBT else 0

        self.mail.withhold(IN_DOUBT)
        blow = self.scene.strike(hour(3), hour(4), out=out, decide=self._decide)
        self.edges.append(hour(4))
        return blow

    def judge(self) -> Ruling:
        """The table, and the mail server's log."""
        return ruling(
            lambda: check.judge(
                self.scene.open_lake().rows("alarms"),
                self.mail.log,
                self.scene.sent,
                edges=self.edges,
                silent=self.silent,
            )
        )

    def _decide(self, run_id: str) -> None:
        """What a person does with an e-mail in doubt: look in the mail server's log, and copy the note that fits."""
        said = self.scene.log(run_id, PUBLISH)
        held = HELD.search(said)
        if held is None:
            self.scene.must(
                False, f"publish of {run_id} does not ask about an e-mail: {said[-500:]}"
            )
            return
        taken = any(mail.message_id == held["id"] for mail in self.mail.log)
        self.scene.must(taken, f"<{held['id']}> is in doubt, and the mail server never took it")
        self.scene.say(
            "one e-mail is in doubt; the mail server's log says that it was taken: noted"
        )
        variables = self.scene.variables
        client = boto3.client(
            "s3",
            endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            region_name=variables["AWS_REGION"],
        )
        source, target = (
            held[name].removeprefix("s3://").split("/", 1) for name in ("try", "sent")
        )
        client.copy_object(
            CopySource={"Bucket": source[0], "Key": source[1]}, Bucket=target[0], Key=target[1]
        )


def hour(number: int) -> datetime:
    """When an hour of 1 January 2013 begins."""
    return day(1) + timedelta(hours=number)


def alarms() -> list[list[Record]]:
    """The alarms of each hour, in the order in which they arrive; some carry the time of a clock that is behind."""
    chance = random.Random(SEED)
    found = sorted([*_by_chance(chance), *_by_hand()])
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


def _by_chance(chance: random.Random) -> Iterator[Alarm]:
    """Devices that raise alarms again and again, through whichever partition; some of them in the last hour only."""
    for number in range(DEVICES + NEW_DEVICES):
        first, last = (0, HOURS - 1) if number < DEVICES else (HOURS - 1, HOURS)
        at_ms = chance.randrange(first * HOUR_MS, last * HOUR_MS)
        while at_ms < HOURS * HOUR_MS:
            behind_ms = chance.randrange(90 * SECOND_MS) if chance.random() < 0.1 else 0
            what = chance.choice(["too hot", "door open", "silent"])
            yield (at_ms, chance.randrange(PARTITIONS), behind_ms, f"device-{number:02}", what)
            at_ms += round(chance.expovariate(1 / (15 * MINUTE_MS))) + 1


def _by_hand() -> Iterator[Alarm]:
    """What is decided by a millisecond, or by the order of the log."""
    ten_past_one = HOUR_MS + 10 * MINUTE_MS
    yield (ten_past_one, 0, 0, "just-an-hour", "stays")
    yield (ten_past_one + HOUR_MS, 1, 0, "just-an-hour", "stays, too")
    yield (ten_past_one + 1, 0, 0, "not-quite", "stays")
    yield (ten_past_one + HOUR_MS, 1, 0, "not-quite", "goes")
    yield (2 * HOUR_MS - 1, 1, 0, "across", "stays")
    yield (2 * HOUR_MS + 30 * MINUTE_MS, 2, 0, "across", "goes")
    # Dropped ones count as seen: without a pause of an hour it is kept once.
    for number in range(8):
        yield (number * 29 * MINUTE_MS + 7, number % PARTITIONS, 0, "restless", f"number {number}")
    for partition in range(PARTITIONS):
        yield (2 * HOUR_MS + 40 * MINUTE_MS, partition, 0, "at-once", f"partition {partition}")


def _ms(since_ms: int) -> int:
    return round(day(1).timestamp() * 1000) + since_ms
