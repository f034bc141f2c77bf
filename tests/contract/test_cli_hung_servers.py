"""Every command of `tally` on a server that accepts connections and never answers: a notice, and exit code 75.

The commands run in processes of their own, all of them before the first test: forks of one that has imported their
modules, and for the last tests new ones, as a shell starts them. A command that is not in COMMANDS fails a test, so that
a new one is not forgotten.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
import typer

from contract.conftest import BUCKET
from support.forked_tally import forked_tally
from support.small_lake import good_lake
from tallystick.cli import app as cli
from tallystick.cli import waiting
from tallystick.store.s3 import S3Settings, S3Store
from tallystick_devstack.testing.fault_proxy import NO_FAULT, FaultProxy, HttpFault, Seen
from tallystick_devstack.testing.servers import aws_environment

LIMIT_S = "3"
ENDS_S = 180
LAKE = f"s3://{BUCKET}/hung"
DAY = ("--from", "2013-01-06", "--to", "2013-01-07")
AT_ONCE: tuple[str, ...] = ()
AFTER_ROOT = ("/root.json",)
AFTER_METADATA = ("/root.json", "/metadata/", "/ledger/")
EVERYTHING = ("/",)
DEMO = str(Path(__file__).parents[2] / "dags" / "flights.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A command, the requests that S3 answers before it hangs (parts of their paths), and what the notice names."""

    argv: tuple[str, ...]
    answered: tuple[str, ...] = AT_ONCE
    waits_for: str = "reading root.json"


COMMANDS: Mapping[str, Mapping[str, Hang]] = {
    "status": {
        "at once": Hang(argv=()),
        "after the root": Hang(argv=(), answered=AFTER_ROOT, waits_for="reading ledger/"),
    },
    "log": {
        "at once": Hang(argv=()),
        "after the root": Hang(argv=(), answered=AFTER_ROOT, waits_for="reading commits/"),
    },
    "tables": {
        "at once": Hang(argv=()),
        "after the root": Hang(argv=(), answered=AFTER_ROOT, waits_for="reading tables/"),
        "at once, --files": Hang(argv=("--files",), waits_for="listing all objects"),
        "after the root, --as-of": Hang(
            argv=("--as-of", "2013-01-01"), answered=AFTER_ROOT, waits_for="reading commits/"
        ),
    },
    "sql": {
        "at once": Hang(argv=("select sum(n) from events",)),
        "at the metadata": Hang(
            argv=("select sum(n) from events",),
            answered=AFTER_ROOT,
            waits_for="DuckDB and S3: reading the tables' metadata",
        ),
        "at the rows": Hang(
            argv=("select sum(n) from events",),
            answered=AFTER_METADATA,
            waits_for="DuckDB and S3: running the statement",
        ),
    },
    "dead-letters": {
        "at once": Hang(argv=()),
        "after the root": Hang(argv=(), answered=AFTER_ROOT, waits_for="reading ledger/"),
    },
    "check": {
        "S3": Hang(argv=(DEMO, "--no-kafka"), waits_for="listing all objects"),
        "Kafka": Hang(
            argv=(DEMO,),
            answered=EVERYTHING,
            waits_for="Kafka (connection default): reading the topics",
        ),
    },
    "init": {
        "Kafka": Hang(
            argv=("new", "--topic", "events"),
            answered=EVERYTHING,
            waits_for="Kafka (connection default): reading records of events",
        )
    },
    "replay": {
        "S3": Hang(argv=(DEMO, *DAY)),
        "after the root": Hang(argv=(DEMO, *DAY), answered=AFTER_ROOT, waits_for="listing ledger/"),
        "Kafka": Hang(
            argv=(DEMO, *DAY),
            answered=EVERYTHING,
            waits_for="Kafka (connection default): reading the topics",
        ),
    },
    "plan": {
        "at once": Hang(argv=DAY),
        "after the root": Hang(argv=DAY, answered=AFTER_ROOT, waits_for="reading ledger/"),
    },
    "release": {"at once": Hang(argv=DAY)},
    "publish": {"at once": Hang(argv=("--pipeline", __file__))},
    "gc": {
        "at once": Hang(argv=(), waits_for="listing all objects"),
        "at once, --delete": Hang(argv=("--delete",)),
        "after the root, --delete": Hang(
            argv=("--delete",), answered=AFTER_ROOT, waits_for="listing all objects"
        ),
    },
    "compact": {
        "at once": Hang(argv=()),
        "after the root": Hang(argv=(), answered=AFTER_ROOT, waits_for="writing .probe/"),
        "at once, --dry-run": Hang(argv=("--dry-run",)),
        "after the root, --dry-run": Hang(
            argv=("--dry-run",), answered=AFTER_ROOT, waits_for="reading ledger/"
        ),
    },
    "metrics": {
        "at once": Hang(argv=("--no-kafka",)),
        "after the root": Hang(
            argv=("--no-kafka",), answered=AFTER_ROOT, waits_for="reading ledger/"
        ),
    },
    "catalog": {"at once": Hang(argv=("--port", "0"))},
    "show": {"at once": Hang(argv=("root.json",))},
    "probe": {"at once": Hang(argv=(), waits_for="testing conditional writes")},
    "verify": {
        "at once": Hang(argv=()),
        "after the root": Hang(argv=(), answered=AFTER_ROOT, waits_for="listing all objects"),
        "at once, --deep": Hang(argv=("--deep",)),
    },
    "topic adopt": {
        "at once": Hang(argv=("events",)),
        "Kafka": Hang(
            argv=("events",), answered=AFTER_METADATA, waits_for="Kafka (connection default)"
        ),
    },
}
CASES = {
    f"{name}: {when}": (name, hang)
    for name, cases in COMMANDS.items()
    for when, hang in cases.items()
}
# The group belongs to another distribution, and asks no store. Errors of `doctor` are its answer: it has a test below.
OTHER_GROUPS = {"local", "doctor"}


class Hanging(FaultProxy):
    """A proxy to S3 that answers the requests whose path contains one of `answered`, and no other."""

    def __init__(self, url: str, answered: tuple[str, ...]) -> None:
        super().__init__(url, method=None)
        self._answered = answered

    def choose(self, seen: Seen) -> HttpFault:
        if any(part in seen.path for part in self._answered):
            return NO_FAULT
        return HttpFault(forward="never", answer="hang")


@pytest.fixture(scope="module")
def frozen_broker() -> Iterator[str]:
    """Yield the address of a stopped broker: the kernel accepts its connections, and no process reads them."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def environment(endpoint: str, broker: str) -> dict[str, str]:
    """Return the environment of a command."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **inherited,
        **aws_environment(endpoint),
        "TALLYSTICK_LAKE": LAKE,
        "TALLYSTICK_DEMO_WAREHOUSE": f"{LAKE}-new",
        "TALLYSTICK_KAFKA_DEFAULT": json.dumps({"bootstrap_servers": [broker]}),
    }


def run_tally(
    endpoint: str, broker: str, *argv: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `tally` in another process. It must end by itself."""
    return subprocess.run(
        [sys.executable, "-c", "from tallystick.cli import main; main()", *argv],
        env=environment(endpoint, broker),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )


@pytest.fixture(scope="module")
def on_s3(ministack_url: str, session: boto3.session.Session) -> str:
    """Return the address of a server with a good lake."""
    store = S3Store(LAKE, settings=S3Settings(endpoint_url=ministack_url), session=session)
    good_lake(store)
    return ministack_url


@pytest.fixture(scope="module")
def ended(
    on_s3: str, frozen_broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, subprocess.CompletedProcess[str]]:
    """Run every case, several at a time, and return how each ended."""

    def run(case: tuple[str, Hang]) -> subprocess.CompletedProcess[str]:
        name, hang = case
        with Hanging(on_s3, hang.answered) as proxy:
            words = ("--timeout", LIMIT_S, *name.split(), *hang.argv)
            environ = environment(proxy.url, frozen_broker)
            return forked_tally(*words, environ=environ, folder=folder, timeout_s=ENDS_S)

    folder = tmp_path_factory.mktemp("project")
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(CASES, pool.map(run, CASES.values()), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_command_names_what_it_waits_for_and_ends_with_75(
    ended: Mapping[str, subprocess.CompletedProcess[str]], case: str
) -> None:
    result = ended[case]
    assert result.returncode == 75, result.stderr
    text = " ".join(result.stderr.split())
    assert "Traceback" not in text
    notice = text.index("still waiting for ")
    if case.startswith("check:"):
        # Its errors are findings, which are its answer.
        assert CASES[case][1].waits_for in text[notice:]
        assert "FAIL" in result.stdout
        assert "Next: " in result.stdout
        return
    error = text.index("_unavailable: ")
    assert CASES[case][1].waits_for in text[notice:error], text
    assert "Next: " in text[error:]


def test_doctor_ends_with_an_error_for_each_server_that_hangs(
    on_s3: str, frozen_broker: str, tmp_path: Path
) -> None:
    with Hanging(on_s3, AT_ONCE) as proxy:
        result = run_tally(
            proxy.url,
            frozen_broker,
            "--timeout",
            LIMIT_S,
            "doctor",
            LAKE,
            "--json",
            folder=tmp_path,
        )
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    failed = {one["area"] for one in json.loads(result.stdout)["checks"] if one["state"] == "error"}
    assert failed >= {"kafka default", f"ledger {LAKE}"}


def _commands(group: Any, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, command in group.commands.items():
        path = f"{prefix} {name}".strip()
        found |= _commands(command, path) if hasattr(command, "commands") else {path}
    return found


def test_the_table_has_every_command() -> None:
    commands = _commands(typer.main.get_command(cli.app))
    assert {name for name in commands if name.split()[0] not in OTHER_GROUPS} == COMMANDS.keys()


def test_by_default_the_notice_comes_within_seconds_and_the_end_within_a_minute() -> None:
    """The notice is checked four times in its time, so it comes a quarter late at most."""
    assert 1.25 * waiting.notice_s() <= 5
    assert waiting.LIMIT_S.get() == 60


def test_status_reports_a_broker_that_does_not_answer_and_shows_the_rest(
    on_s3: str, frozen_broker: str
) -> None:
    result = run_tally(on_s3, frozen_broker, "status")
    assert result.returncode == 0, result.stderr
    assert "still waiting for Kafka (connection default)" in result.stderr
    assert "lag unknown (kafka_unavailable)" in result.stdout
    assert "Offsets before 2013-01-01 and after 2013-01-07: not known (kafka_" in result.stdout


def test_with_json_standard_error_has_the_error_alone(on_s3: str, frozen_broker: str) -> None:
    with Hanging(on_s3, AT_ONCE) as proxy:
        result = run_tally(proxy.url, frozen_broker, "--timeout", LIMIT_S, "verify", "--json")
    assert result.returncode == 75
    assert json.loads(result.stderr)["error"]["kind"] == "store_unavailable"
    assert result.stdout == ""
