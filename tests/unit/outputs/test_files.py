"""A folder of files: readers find one whole file per committed interval, whichever process dies or is late."""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from support.fake_output import Killed
from tallystick.errors import Corrupt, OutputBusy, OutputRefused, ScratchFull, SettingsError
from tallystick.outputs import files
from tallystick.outputs.encoding import encoded, json_lines
from tallystick.outputs.files import FileOutput, Folder
from tallystick.outputs.port import Scope
from unit.outputs.publications import IN_THE_YEAR_10000, SCOPE, in_the_year_10000, publication

OLD = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
NEW = [{"k": "a", "n": 10}]


OTHER = Scope(lake="memory://other", pipeline="small")


def folder(path: Path, *, name: str = "feed", **options: Any) -> Folder:
    """Return the output of a folder."""
    return Folder(FileOutput(name=name, table="events", folder=str(path)), **options)


def visible(path: Path) -> dict[str, list[Any]]:
    """Return the files that a reader finds, each with its rows."""
    return {
        file.name: [json.loads(line) for line in file.read_bytes().splitlines()]
        for file in sorted(path.iterdir())
        if not file.name.startswith(".")
    }


def hidden(path: Path, ending: str) -> list[str]:
    """Return the names of hidden files with this ending."""
    return sorted(p.name for p in (path / files.HIDDEN).glob(f"*{ending}"))


FILE = "20130101T000000000Z-20130102T000000000Z.jsonl"


def test_prepared_rows_are_hidden_and_published_rows_are_one_whole_file(tmp_path: Path) -> None:
    output, pub = folder(tmp_path), publication(OLD)
    output.begin(SCOPE)
    output.prepare(pub)
    assert visible(tmp_path) == {}
    output.publish(pub, resumed=False)
    assert visible(tmp_path) == {FILE: OLD}
    assert hidden(tmp_path, ".prepared") == hidden(tmp_path, ".writing") == []
    output.close()


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    output, pub = folder(tmp_path), publication(OLD)
    output.prepare(pub)
    output.publish(pub, resumed=False)
    before = (tmp_path / FILE).stat()
    output.publish(pub, resumed=True)
    after = (tmp_path / FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_replacement_takes_the_files_place_and_a_zombie_of_the_old_one_leaves_it(
    tmp_path: Path,
) -> None:
    output = folder(tmp_path)
    old, new = publication(OLD), publication(NEW, plan=2, generation=2, instead_of=1, before=OLD)
    for each in (old, new):
        output.prepare(each)
        output.publish(each, resumed=False)
    assert visible(tmp_path) == {FILE: NEW}
    zombie = folder(tmp_path)
    zombie.prepare(old)
    zombie.publish(old, resumed=True)
    assert visible(tmp_path) == {FILE: NEW}
    assert hidden(tmp_path, ".prepared") == []


def test_an_empty_replacement_leaves_an_empty_file(tmp_path: Path) -> None:
    output = folder(tmp_path)
    output.publish(publication(OLD), resumed=False)
    output.publish(publication([], plan=2, generation=2, instead_of=1, before=OLD), resumed=False)
    assert visible(tmp_path) == {FILE: []}


def test_an_aborted_publication_leaves_nothing(tmp_path: Path) -> None:
    output, pub = folder(tmp_path), publication(OLD)
    output.prepare(pub)
    output.abort(pub)
    output.abort(pub)
    assert hidden(tmp_path, ".prepared") == []
    assert visible(tmp_path) == {}


REPORTS = ("attempts/a/1-0.json", "attempts/a/2-0.json")


@pytest.mark.parametrize("resumed", [True, False])
def test_rows_prepared_by_another_attempt_at_the_plan_are_not_published(
    tmp_path: Path, resumed: bool
) -> None:
    """A stopped process of an older attempt resumes between the publisher's `prepare` and its rename."""
    older, committed = (
        replace(publication(rows), report=report)
        for rows, report in zip((NEW, OLD), REPORTS, strict=True)
    )
    publisher, zombie = folder(tmp_path), folder(tmp_path)
    publisher.prepare(committed)
    zombie.prepare(older)
    (folder(tmp_path) if resumed else publisher).publish(committed, resumed=resumed)
    assert visible(tmp_path) == {FILE: OLD}
    (note,) = (tmp_path / files.HIDDEN).glob("*.published")
    assert json.loads(note.read_bytes())["rows"] == len(OLD)
    # The plan is published: what is left of it is listed under its plan, and is swept.
    left = publisher.leftovers()
    assert [leftover.plan for leftover in left] == [committed.plan]
    publisher.sweep(left)
    assert publisher.leftovers() == ()


def test_a_zombie_that_aborts_removes_its_own_file_only(tmp_path: Path) -> None:
    older, committed = (
        replace(publication(rows), report=report)
        for rows, report in zip((NEW, OLD), REPORTS, strict=True)
    )
    output = folder(tmp_path)
    output.prepare(committed)
    output.prepare(older)
    (ours,) = set(hidden(tmp_path, ".prepared")) - {output._prepared(older).name}
    output.abort(older)
    assert hidden(tmp_path, ".prepared") == [ours]
    output.publish(committed, resumed=False)
    assert visible(tmp_path) == {FILE: OLD}


POINTS = ("replace", "sync", "sync_folder")


@pytest.mark.parametrize("nth", range(1, 4))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", POINTS)
def test_the_publisher_after_one_that_dies_at_any_step_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, when: str, nth: int
) -> None:
    output = folder(tmp_path)
    output.publish(publication(OLD), resumed=False)
    new = publication(NEW, plan=2, generation=2, instead_of=1, before=OLD)
    with monkeypatch.context() as patched:
        die_at(patched, point, when, nth)
        died = False
        try:
            output.prepare(new)
            output.publish(new, resumed=False)
        except Killed:
            died = True
    # Readers find one of the two files, whole.
    assert visible(tmp_path) in ({FILE: OLD}, {FILE: NEW})
    assert died is (nth <= {"replace": 3, "sync": 2, "sync_folder": 3}[point])
    folder(tmp_path).publish(new, resumed=True)
    assert visible(tmp_path) == {FILE: NEW}
    assert hidden(tmp_path, ".prepared") == []


def die_at(patched: pytest.MonkeyPatch, point: str, when: str, nth: int) -> None:
    """Raise Killed before or after the nth call of a step."""
    owner_note, name = (Path, "replace") if point == "replace" else (files, f"_{point}")
    real: Callable[..., Any] = getattr(owner_note, name)
    count = 0

    def step(*of: Any) -> Any:
        nonlocal count
        count += 1
        if count == nth and when == "before":
            raise Killed(name)
        done = real(*of)
        if count == nth:
            raise Killed(name)
        return done

    patched.setattr(owner_note, name, step)


def test_publish_waits_for_a_locked_folder_and_then_fails_as_busy(tmp_path: Path) -> None:
    output, pub = folder(tmp_path, lock_s=0.2), publication(OLD)
    output.begin(SCOPE)
    with (tmp_path / files.HIDDEN / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutputBusy, match=r"another process has locked .* output feed"):
            output.publish(pub, resumed=False)
    output.publish(pub, resumed=False)
    assert visible(tmp_path) == {FILE: OLD}


def test_a_full_disk_can_be_retried_and_other_errors_need_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, pub = folder(tmp_path), publication(OLD)
    for number, error in ((errno.ENOSPC, ScratchFull), (errno.EROFS, SettingsError)):

        def fails(*_: Any, number: int = number) -> None:
            raise OSError(number, os.strerror(number), "the folder")

        with monkeypatch.context() as patched:
            patched.setattr(files, "_sync", fails)
            with pytest.raises(
                error, match=r"output feed of .*: the folder: .*the tables are committed"
            ):
                output.prepare(pub)
        assert hidden(tmp_path, ".writing") == []


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"output feed: .*cannot be created: Not a directory"):
        folder(tmp_path / "file" / "sub").begin(SCOPE)


def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    output = folder(tmp_path)
    output.publish(publication(OLD), resumed=False)
    (note,) = (tmp_path / files.HIDDEN).glob("*.published")
    note.write_text('{"plan": 1')
    with pytest.raises(Corrupt, match="expected the plan of"):
        output.publish(publication(NEW, plan=2, generation=2), resumed=False)
    assert visible(tmp_path) == {FILE: OLD}


def test_rows_are_exact_json() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    row = {
        "text": "é\n",
        "number": 2**63 - 1,
        "exact": Decimal("1E+3"),
        "cents": Decimal("0.10"),
        "float": 0.1,
        "nan": float("nan"),
        "inf": float("inf"),
        "minus": float("-inf"),
        "none": None,
        "yes": True,
        "bytes": b"\x00\xff",
        "day": dt.date(2013, 1, 1),
        "naive": dt.datetime(2013, 1, 1, 5, 0, 0, 1),  # noqa: DTZ001 - a column without a zone
        "instant": dt.datetime(2013, 1, 1, 5, tzinfo=zone),
        "clock": dt.time(5, 15, 0, 1),
        "id": UUID(int=7),
        "struct": {"at": dt.date(2013, 1, 1), "list": [b"\x00", None, {"x": Decimal("1.0")}]},
        "map": {1: UUID(int=7), 2: None},
        "days": {dt.date(2013, 1, 1): float("nan")},
    }
    assert json.loads(encoded(row)) == {
        **row,
        "exact": "1000",
        "cents": "0.10",
        "nan": "NaN",
        "inf": "Infinity",
        "minus": "-Infinity",
        "bytes": "AP8=",
        "day": "2013-01-01",
        "naive": "2013-01-01T05:00:00.000001",
        "instant": "2013-01-01T03:00:00Z",
        "clock": "05:15:00.000001",
        "id": "00000000-0000-0000-0000-000000000007",
        "struct": {"at": "2013-01-01", "list": ["AA==", None, {"x": "1.0"}]},
        "map": {"1": "00000000-0000-0000-0000-000000000007", "2": None},
        "days": {"2013-01-01": "NaN"},
    }
    assert "é".encode() in encoded(row)


def test_maps_are_objects_and_lists_are_arrays_also_if_they_are_empty() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.int64()))
    batch = pa.RecordBatch.from_pydict(
        {
            "m": pa.array([[("a", [1])], [], None], kind),
            "l": pa.array([[], [[("b", [])]], None], pa.list_(kind)),
        }
    )
    assert list(json_lines(batch)) == [
        b'{"m":{"a":[1]},"l":[]}',
        b'{"m":{},"l":[{"b":[]}]}',
        b'{"m":null,"l":null}',
    ]


def test_leftovers_list_prepared_files_with_plan_and_interval_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, pub, other = folder(tmp_path), publication(OLD), publication(NEW, plan=2, first=2)
    assert output.leftovers() == ()  # the folder does not exist yet
    output.prepare(pub)
    output.publish(pub, resumed=False)
    (tmp_path / files.HIDDEN / "foreign.prepared").write_text("")
    assert output.leftovers() == ()
    output.prepare(other)
    with monkeypatch.context() as patched:
        die_at(patched, "sync", "before", 1)
        # A process that is killed unlinks nothing.
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            output.prepare(pub)
    found = output.leftovers()
    assert sorted((left.plan, left.interval) for left in found) == [
        (pub.plan, pub.interval),
        (other.plan, other.interval),
    ]
    output.sweep([left for left in found if left.plan == pub.plan])
    assert [left.plan for left in output.leftovers()] == [other.plan]
    assert hidden(tmp_path, ".writing") == []
    output.sweep(found)
    output.sweep(found)
    assert output.leftovers() == ()
    assert visible(tmp_path) == {FILE: OLD}


def test_nothing_is_swept_while_another_process_publishes(tmp_path: Path) -> None:
    output, pub = folder(tmp_path), publication(OLD)
    output.prepare(pub)
    found = output.leftovers()
    with (tmp_path / files.HIDDEN / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        output.sweep(found)
        assert output.leftovers() == found
    output.sweep(found)
    assert output.leftovers() == ()
    # Publish prepares the rows again.
    output.publish(pub, resumed=True)
    assert visible(tmp_path) == {FILE: OLD}


def test_a_time_that_no_reader_can_read_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    output = folder(tmp_path)
    output.begin(SCOPE)
    with pytest.raises(OutputRefused) as caught:
        output.prepare(in_the_year_10000())
    assert caught.value.message == IN_THE_YEAR_10000
    assert visible(tmp_path) == {}
    assert hidden(tmp_path, ".prepared") == hidden(tmp_path, ".writing") == []


# ---------------------------------------------------------------- the owner of the folder


def owner_note(path: Path) -> Path:
    """Return the path of the note that names the owner."""
    return path / files.HIDDEN / "owner.json"


def test_a_folder_names_its_owner_which_may_take_it_again(tmp_path: Path) -> None:
    folder(tmp_path).begin(SCOPE)
    note = owner_note(tmp_path).read_bytes()
    assert json.loads(note) == {
        "format": "tallystick.folder/1",
        "lake": "memory://small",
        "pipeline": "small",
        "output": "feed",
    }
    before = owner_note(tmp_path).stat()
    with (tmp_path / files.HIDDEN / "lock").open("ab") as lock:
        # The owner needs no lock to find that it has the folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder(tmp_path, lock_s=0).begin(SCOPE)
    after = owner_note(tmp_path).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert hidden(tmp_path, "") == ["lock", "owner.json"]


@pytest.mark.parametrize(
    ("name", "scope", "named"),
    [
        ("feed", OTHER, "output feed of pipeline small in memory://other"),
        ("feed", replace(SCOPE, pipeline="big"), "output feed of pipeline big in memory://small"),
        ("sums", SCOPE, "output sums of pipeline small in memory://small"),
    ],
)
def test_a_folder_of_another_output_is_refused_and_both_are_named(
    tmp_path: Path, name: str, scope: Scope, named: str
) -> None:
    output = folder(tmp_path)
    output.begin(SCOPE)
    output.publish(publication(OLD), resumed=False)
    note = owner_note(tmp_path).read_bytes()
    with pytest.raises(OutputRefused) as caught:
        folder(tmp_path, name=name).begin(scope)
    assert caught.value.message == (
        f"{tmp_path}: expected {named} as owner, found output feed of pipeline small in memory://small in "
        f"{owner_note(tmp_path)}."
    )
    assert caught.value.hint.startswith(
        "declare another folder; or remove that file, if the other output is retired."
    )
    assert owner_note(tmp_path).read_bytes() == note
    assert visible(tmp_path) == {FILE: OLD}
    # The hint of the error is correct.
    owner_note(tmp_path).unlink()
    folder(tmp_path, name=name).begin(scope)


def test_a_folder_without_an_owner_note_is_taken_with_its_files(
    tmp_path: Path,
) -> None:
    folder(tmp_path).publish(publication(OLD), resumed=False)
    assert not owner_note(tmp_path).exists()
    folder(tmp_path).begin(SCOPE)
    assert visible(tmp_path) == {FILE: OLD}
    with pytest.raises(OutputRefused, match="found output feed of pipeline small"):
        folder(tmp_path).begin(OTHER)


def test_one_of_two_outputs_that_take_a_folder_at_once_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second takes the folder between the first one's read of the note and its lock."""
    first, real = folder(tmp_path), Folder._locked

    def after_the_other(self: Folder, *of: Any) -> Any:
        if self is first:
            folder(tmp_path).begin(OTHER)
        return real(self, *of)

    monkeypatch.setattr(Folder, "_locked", after_the_other)
    with pytest.raises(OutputRefused, match=r"found output feed .* in memory://other"):
        first.begin(SCOPE)
    assert json.loads(owner_note(tmp_path).read_bytes())["lake"] == OTHER.lake


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_while_taking_a_folder_leaves_it_free_or_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, when: str
) -> None:
    with monkeypatch.context() as patched:
        die_at(patched, point, when, 1)
        with pytest.raises(Killed):
            folder(tmp_path).begin(SCOPE)
    taken = owner_note(tmp_path).exists()
    assert taken is ((point, when) == ("replace", "after") or point == "sync_folder")
    if not taken:
        folder(tmp_path).begin(OTHER)
        assert json.loads(owner_note(tmp_path).read_bytes())["lake"] == OTHER.lake
    else:
        folder(tmp_path).begin(SCOPE)
    assert hidden(tmp_path, "") == ["lock", "owner.json"]


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "expected a JSON object"),
        ("{}", "expected format 'tallystick.folder/1', found None"),
        ('{"format": "tallystick.folder/2"}', "found 'tallystick.folder/2'"),
        ('{"format": "tallystick.folder/1", "lake": "a"}', "missing 2 required"),
        (
            '{"format": "tallystick.folder/1", "lake": 1, "pipeline": "p", "output": "o"}',
            "expected a text as lake, found 1",
        ),
    ],
)
def test_an_owner_note_that_cannot_be_read_is_refused(
    tmp_path: Path, note: str, reason: str
) -> None:
    folder(tmp_path).begin(SCOPE)
    owner_note(tmp_path).write_text(note)
    with pytest.raises(Corrupt, match="does not name the owner of the folder") as caught:
        folder(tmp_path).begin(SCOPE)
    assert reason in caught.value.message
    assert f"remove {owner_note(tmp_path)}" in caught.value.hint
    assert owner_note(tmp_path).read_text() == note


def test_a_full_disk_while_the_owner_is_noted_can_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the folder")

    with monkeypatch.context() as patched:
        patched.setattr(files, "_sync", full)
        with pytest.raises(ScratchFull, match=r"output feed: the folder: No space left"):
            folder(tmp_path).begin(SCOPE)
    folder(tmp_path).begin(SCOPE)


def test_the_owner_note_is_not_a_leftover(tmp_path: Path) -> None:
    output = folder(tmp_path)
    output.begin(SCOPE)
    output.prepare(publication(OLD))
    found = output.leftovers()
    assert [left.plan for left in found] == [publication(OLD).plan]
    output.sweep(found)
    assert hidden(tmp_path, "") == ["lock", "owner.json"]
