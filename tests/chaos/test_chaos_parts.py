"""The parts of a chaos run in isolation: draws, traps, settled ledgers, the table, the end of a course."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import backlog, small_disk, table
from chaos.course import NEMESES, Course
from chaos.errors import MissedError, ViolationError
from chaos.moments import ANY, draw
from chaos.records import value_of
from chaos.rounds import Round
from chaos.servers import LostReplies, Refusals
from chaos.settled import not_settled
from chaos.tap import Point, Tap
from oracle.audit import Finding
from oracle.produced import Sent, digest
from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.fault_proxy import NO_FAULT, HttpFault, Seen

DEADLINE_S = 30.0


def day(number: int) -> datetime:
    return datetime(2013, 1, number, tzinfo=UTC)


def entry(start: int, *, committed: bool = True, granted: bool = False) -> dict[str, Any]:
    return {
        "interval": [f"2013-01-0{n}T00:00:00.000Z" for n in (start, start + 1)],
        "committed": {"plan": "plans/x"} if committed else None,
        "granted": {"plan": "plans/y"} if granted else None,
    }


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([entry(1), entry(2)], None),
        ([entry(2), entry(1)], None),
        ([entry(1), entry(2, granted=True)], "still granted"),
        ([entry(1), entry(2, committed=False)], "not committed"),
        ([entry(1)], "nothing is committed from 2013-01-02"),
        ([], "nothing is committed from 2013-01-01"),
    ],
)
def test_green_runs_leave_no_grant_and_no_gap(
    entries: list[dict[str, Any]], problem: str | None
) -> None:
    objects = {"root.json": {"pages": [["a", "b", "page"]]}, "page": {"entries": entries}}
    found = not_settled(objects.__getitem__, [(day(1), day(2)), (day(2), day(3))])
    assert (found is None) == (problem is None)
    assert problem is None or problem in (found or "")


def workspace_at(folder: Path) -> Any:
    """Return the parts of a workspace that a round uses before it is played."""
    removed: list[str] = []
    return SimpleNamespace(
        base=folder,
        disk=small_disk.SmallDisk(folder / "small"),
        declare=lambda lake: None,
        remove=lambda lake: removed.append(lake.name),
        removed=removed,
        save_evidence=lambda lake: folder / lake.name,
    )


@pytest.mark.parametrize("name", sorted(NEMESES))
def test_seed_draws_the_same_round_again(name: str, tmp_path: Path) -> None:
    def drawn(seed: int) -> tuple[object, ...]:
        round_ = Round(workspace=workspace_at(tmp_path), nemesis=NEMESES[name], seed=seed)
        return round_.lake, round_.by_trigger, draw(round_.rng, ANY), round_.rng.random()

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_required_nemesis_exists() -> None:
    assert set(NEMESES) >= {
        "task",
        "supervisor",
        "scheduler",
        "driver",
        "executor",
        "worker",
        "broker",
        "s3",
        "postgres",
        "frozen-driver",
        "disk-full",
        "s3-503",
        "open-transaction",
        "publisher-backlog",
        "compact",
        "frozen-compact",
        "compact-s3",
    }
    assert {n for n in NEMESES if n.startswith("swap-")} == {
        "swap-before",
        "swap-after",
        "swap-delay",
        "swap-twice",
    }
    assert {n for n in NEMESES if n.startswith("compact-swap-")} == {
        "compact-swap-before",
        "compact-swap-after",
        "compact-swap-delay",
        "compact-swap-twice",
    }


def test_missing_and_duplicate_rows_of_an_output_are_found(tmp_path: Path) -> None:
    values = [value_of(1, "a", ""), value_of(2, "b", ""), None]
    r = Round(workspace=workspace_at(tmp_path), nemesis=NEMESES["publisher-backlog"], seed=1)
    for offset, value in enumerate(values):
        r.log.note(Sent("t", 0, offset, "ok", digest(value), 0), value=value)
    rows = [json.dumps({"_kafka_partition": 0, "_offset": offset}) + "\n" for offset in (0, 1)]
    for number in range(backlog.OUTPUTS):
        folder = backlog.folders(r) / f"f{number:02d}"
        folder.mkdir(parents=True)
        (folder / "day.jsonl").write_text("".join(rows))
    assert r.nemesis.problem(r) is None
    (folder / "again.jsonl").write_text(rows[0])
    assert "1 too many, 0 are missing" in (r.nemesis.problem(r) or "")
    (folder / "day.jsonl").unlink()
    assert "0 too many, 1 are missing" in (r.nemesis.problem(r) or "")


# ---------------------------------------------------------------- the tap


class _Upstream(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.arrived.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def upstream() -> Iterator[tuple[str, list[str]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    arrived: list[str] = []
    server.arrived = arrived  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", arrived
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def put(url: str) -> int:
    """Send a PUT of the root of lake `a`, and return the status."""
    request = urllib.request.Request(f"{url}/lake/a/root.json", b"x", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def test_rule_chooses_faults_while_it_is_set_and_no_request_is_remembered() -> None:
    refusal = HttpFault(forward="never", answer=503, code="SlowDown")
    with upstream() as (url, arrived), Tap(url) as tap:
        with tap.rule(lambda _: refusal):
            assert put(tap.url) == 503
        assert put(tap.url) == 200
        assert len(arrived) == 1
        assert tap.seen == ()


@pytest.mark.parametrize(("when", "landed"), [("before", 1), ("after", 2)])
def test_trap_holds_the_nth_request_before_it_lands_or_before_its_reply(
    when: Any, landed: int
) -> None:
    point = Point(name="swap", method="PUT", path=r"root\.json$", nth=2, when=when)
    answered: list[int] = []
    with upstream() as (url, arrived), Tap(url) as tap:
        with tap.trap(point, "a", hold=True) as trap, tap.trap(point, "b", hold=True) as other:
            answered.append(put(tap.url))
            assert not trap.sprung.is_set()
            second = threading.Thread(target=lambda: answered.append(put(tap.url)))
            second.start()
            wait_until(trap.sprung.is_set, deadline_s=DEADLINE_S, what="the trap")
            assert (len(arrived), len(answered)) == (landed, 1)
            assert trap.holder is not None
            assert not other.sprung.is_set()
        second.join(DEADLINE_S)
        assert (len(arrived), len(answered)) == (2, 2)


def seen(path: str, method: str = "PUT") -> Seen:
    return Seen(method=method, path=path, headers={}, body=b"", upstream_statuses=[])


def test_a_third_of_the_requests_of_one_lake_is_refused() -> None:
    import random

    rule = Refusals("a", random.Random(1))
    refused = HttpFault(forward="never", answer=503, code="SlowDown")
    answers = [rule(seen("/lake/a/root.json", "GET")) for _ in range(3000)]
    assert {*answers} == {NO_FAULT, refused}
    assert 900 < answers.count(refused) == rule.refused < 1100
    assert {rule(seen("/lake/b/root.json")) for _ in range(100)} == {NO_FAULT}


def test_late_copy_is_due_after_the_given_number_of_swaps() -> None:
    rule = LostReplies(lake="a", kind="delay", first=2, many=1, answer="close", due_after=2)
    faults = [rule(seen("/lake/a/root.json")) for _ in range(3)]
    assert [f.forward for f in faults] == ["once", "later", "once"]
    assert not rule.arrives()
    rule(seen("/lake/a/root.json"))
    assert rule.arrives()


# ---------------------------------------------------------------- the course


def course_at(workspace: Any, ends: list[Any], patch: pytest.MonkeyPatch) -> Course:
    """Return a course of two rounds of one nemesis, whose rounds end with `ends`: records, or an exception."""
    upcoming = iter(ends)

    def run(_: Round) -> Finding:
        end = next(upcoming)
        if isinstance(end, Exception):
            raise end
        return Finding(records=end)

    patch.setattr(Round, "run", run)
    return Course(
        workspace=workspace, nemeses=[NEMESES["task"]], seed=40, report=lambda _: None, rounds=2
    )


def test_course_counts_what_was_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace_at(tmp_path)
    course = course_at(workspace, [700, 800], monkeypatch)
    assert course.run() is None
    line = course.lines["task"]
    assert (line.rounds, line.records, line.missed, line.seeds) == (2, 1500, 0, "40-41")
    assert workspace.removed == ["task-40", "task-41"]


def test_missed_moment_is_played_again_with_hold_and_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_at(tmp_path)
    course = course_at(
        workspace, [MissedError("a"), 700, MissedError("b"), MissedError("c")], monkeypatch
    )
    assert course.run() is None
    line = course.lines["task"]
    assert (line.rounds, line.records, line.missed) == (1, 700, 3)
    assert workspace.removed == ["task-40", "task-40-again", "task-41", "task-41-again"]


def test_course_ends_at_the_first_violation_with_its_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = course_at(workspace_at(tmp_path), [700, ViolationError("a record twice")], monkeypatch)
    broken = course.run()
    assert broken is not None
    assert broken.counter_example == f"a record twice\n\nevidence: {tmp_path / 'task-41'}"
    assert broken.replay == "make chaos NEMESIS=task SEED=41 ROUNDS=1"
    assert course.lines["task"].rounds == 1


def lines() -> list[table.Line]:
    lines = [
        table.Line(nemesis=n.name, what=n.what, first_seed=999_000, last_seed=999_029)
        for n in NEMESES.values()
    ]
    for line in lines:
        for seed in range(999_000, 999_030):
            line.add(Finding(records=123_456), seed, 61.0)
    lines[-1].not_run = "must be superuser to use mount, and this is a long reason for it"
    return lines


def test_table_fits_a_terminal_and_has_the_right_sums() -> None:
    text = table.as_text(lines())
    assert max(map(len, text.splitlines()[:-2])) <= 100
    every = 30 * len(NEMESES)
    assert text.splitlines()[-1].split()[:3] == ["all", str(every), f"{every * 123_456:,}"]


def test_table_is_written_as_json_and_markdown(tmp_path: Path) -> None:
    table.write(tmp_path / "a.json", lines(), now=day(4))
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["date"] == "2013-01-04"
    assert written["lines"][0]["rounds"] == 30
    table.write(tmp_path / "a.md", lines())
    head, rule, first, *_ = (tmp_path / "a.md").read_text().splitlines()
    assert len({row.count("|") for row in (head, rule, first)}) == 1
