"""A command on a store that accepts the connection and never answers: it prints what it waits for, and ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tallystick.cli import waiting
from tallystick.cli.waiting import WatchedStore
from tallystick.store.memory import MemoryStore
from tallystick.store.s3 import _GET_TRIES, S3Settings
from unit.cli.invoke import LAKE, tally


@pytest.fixture
def frozen() -> Iterator[str]:
    """Yield the address of a stopped server: the kernel accepts its connections, and no process reads them."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def run_tally(endpoint: str, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `tally` in another process, whose standard error is no terminal; it must end by itself."""
    return subprocess.run(
        [sys.executable, "-c", "from tallystick.cli import main; main()", *argv],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_EC2_METADATA_DISABLED": "true",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_frozen_store_ends_a_command_with_a_notice_and_an_exit_code(frozen: str) -> None:
    ended = run_tally(frozen, "--timeout", "3", "status", "s3://lake/flights")
    assert ended.returncode == 75, ended.stderr
    server, waiting, *_ = ended.stderr.splitlines()
    assert server == f"Lake s3://lake/flights at {frozen}."
    assert waiting == f"still waiting for s3://lake/flights at {frozen}: reading root.json."
    assert "store_unavailable: " in ended.stderr
    assert frozen in " ".join(ended.stderr.split())
    assert "Next: " in ended.stderr
    assert ended.stdout == ""


def test_the_environment_sets_the_limit_and_json_stays_json(frozen: str) -> None:
    words = ["status", "s3://lake/flights", "--json"]
    ended = run_tally(frozen, *words, TALLYSTICK_TIMEOUT="2")
    assert ended.returncode == 75, ended.stderr
    assert json.loads(ended.stderr)["error"]["kind"] == "store_unavailable"


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "soon", "1e9"])
def test_an_invalid_limit_is_refused(limit: str) -> None:
    result = tally("--timeout", limit, "status", LAKE)
    assert result.exit_code == 77
    message = f"(--timeout, TALLYSTICK_TIMEOUT): expected 1 to 86400 seconds, found {limit!r}."
    assert message in " ".join(result.stderr.split())


def test_all_tries_of_a_read_fit_the_limit_and_a_task_has_its_own_limits() -> None:
    limited = S3Settings().answering_within(60)
    one_read_s = _GET_TRIES * limited.read_attempts_max * limited.read_timeout_s
    assert one_read_s == 60
    assert (S3Settings().read_timeout_s, S3Settings().read_attempts_max) == (20, 4)


class Slow(MemoryStore):
    """A store that answers once `may_answer` is set."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.may_answer = threading.Event()

    def get(self, key: str) -> Any:
        assert self.may_answer.wait(60)
        return super().get(key)

    def list(self, prefix: str) -> Iterator[Any]:
        yield from super().list(prefix)
        assert self.may_answer.wait(60)


@pytest.mark.parametrize("call", ["get", "list"])
def test_a_slow_call_is_named_once_and_a_quick_call_never(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    slow, notes, noticed = Slow(), [], threading.Event()

    def note(text: str) -> None:
        notes.append(text)
        noticed.set()

    monkeypatch.setattr(waiting, "note", note)
    store = WatchedStore(slow, notice_s=0.01)
    slow.create("a", b"one")
    call_store = (lambda: store.get("a")) if call == "get" else (lambda: list(store.list("")))
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call_store()))
    thread.start()
    assert noticed.wait(60)
    slow.may_answer.set()
    thread.join(60)
    assert answers[0] == (slow.get("a") if call == "get" else list(slow.list("")))
    assert len(notes) == 1
    what = "reading a" if call == "get" else "listing all objects"
    assert notes[0].endswith(f": {what}.")
    assert store.get("a") == slow.get("a")
    with suppress(StopIteration):
        next(store.list("nothing"))
    assert len(notes) == 1
