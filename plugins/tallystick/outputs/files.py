"""A folder with one file per interval. A file is prepared under a hidden name and published by one rename.

    <folder>/<interval>.jsonl                              the published file: readers always see a whole file
    <folder>/.tallystick/<interval>.<plan uuid>.<32 digits of the report's SHA-256>.prepared   written and synced before
                                                           the interval is in progress in the ledger
    <folder>/.tallystick/<interval>.<plan uuid>.<uuid>.writing   a file that is being written
    <folder>/.tallystick/<interval>.published              the plan of the published file, and its number of rows
    <folder>/.tallystick/owner.json                        the owner of the folder: one output of one pipeline and lake
    <folder>/.tallystick/lock                              held while a file is published, or the folder is taken

rename(2) replaces an older file atomically (POSIX.1-2024, rename). The folder must be on one file system: a local
one, or one whose locks work across all machines that publish.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tallystick.errors import Corrupt, OutputBusy, OutputRefused, ScratchFull, SettingsError
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.outputs.encoding import json_lines
from tallystick.outputs.port import Leftover, Publication, Scope
from tallystick.pipeline import Replaced
from tallystick.pipeline.columns import refuse

HIDDEN = ".tallystick"
FOLDER_FORMAT = "tallystick.folder/1"
LOCK_S = 60.0
PAUSE_S = 0.05
_SET_ASIDE = re.compile(r"([0-9TZ]+-[0-9TZ]+)\.([0-9a-f]{32})\.[0-9a-f]{32}\.(?:prepared|writing)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutput:
    """The declaration of a folder that gets one file of JSON lines per interval.

    `folder` is the same path on every machine that publishes, and belongs to no other output. `replaced`: with
    `compensate`, the file of a replaced interval is replaced, too; with `refuse`, an interval that was published
    cannot be replaced.
    """

    name: str
    table: str
    folder: str
    replaced: Replaced = "compensate"

    def __post_init__(self) -> None:
        if self.replaced not in ("compensate", "refuse"):
            raise refuse(
                f"output {self.name}: unsupported replaced={self.replaced!r} for a folder.",
                "use compensate or refuse.",
            )

    @property
    def target(self) -> str:
        """The target that the output's name refers to."""
        return f"file:{self.folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The plan that a published file belongs to."""

    plan: keys.PlanId
    generation: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of a folder: an output of a pipeline and lake."""

    lake: str
    pipeline: str
    output: str

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) or not value:
                raise ValueError(f"expected a text as {name}, found {value!r}")

    def __str__(self) -> str:
        return f"output {self.output} of pipeline {self.pipeline} in {self.lake}"


class Folder:
    """The output that a FileOutput declares."""

    def __init__(self, declared: FileOutput, *, lock_s: float = LOCK_S) -> None:
        self.declared, self.lock_s = declared, lock_s
        self.folder = Path(declared.folder)
        self.hidden = self.folder / HIDDEN

    def begin(self, scope: Scope) -> None:
        """Create the folders and record their owner. Raises OutputRefused if they belong to another output.

        Files are named after their intervals only, so two outputs in one folder would overwrite each other's files.
        Safe to repeat: what is there stays, and if two processes do this at once, one of them records the owner.
        """
        self._make_folders()
        own = Owner(lake=scope.lake, pipeline=scope.pipeline, output=self.declared.name)
        try:
            owner = self._owner() or self._taken(own)
        except OSError as error:
            raise self._failed(f"output {self.declared.name}", error) from error
        if owner != own:
            raise OutputRefused(
                f"{self.folder}: expected {own} as owner, found {owner} in {self._owner_path}.",
                hint="declare another folder; or remove that file, if the other output is retired. Nothing was "
                "published, and the tables are committed.",
            )

    def _make_folders(self) -> None:
        try:
            self.hidden.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"output {self.declared.name}: {self.hidden} cannot be created: {error.strerror}.",
                hint="allow the user who runs Airflow's tasks to write there, on each machine that runs them.",
            ) from error

    def prepare(self, publication: Publication) -> None:
        """Write the file under its hidden name.

        Safe to repeat: the second file replaces the first one and has the same rows, because both are of one report.
        """
        # Imported here, because a DAG file that declares a folder must not load Arrow.
        from tallystick.outputs.times import check_batch

        self._make_folders()
        fresh = self._writing(publication)
        try:
            number = 0
            with fresh.open("xb") as file:
                for batch in publication.rows.batches():
                    check_batch(publication, batch, number)
                    number += len(batch)
                    for line in json_lines(batch):
                        file.write(line + b"\n")
                _sync(file)
            fresh.replace(self._prepared(publication))
            _sync_folder(self.hidden)
        except OSError as error:
            raise self._failed(publication, error) from error
        finally:
            fresh.unlink(missing_ok=True)

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Rename the prepared file to the name that readers use.

        Safe to repeat: under the lock, the note names the plan of the published file. A zombie of an older generation
        finds a newer one there and leaves it unchanged. If the file was prepared on another machine or is removed, it
        is prepared again.
        """
        del resumed  # the note shows what is published
        with self._locked():
            note = self._note(publication)
            if note is not None and note.generation > publication.generation:
                self._prepared(publication).unlink(missing_ok=True)
                return
            prepared = self._prepared(publication)
            if not prepared.exists():
                if (
                    note is not None
                    and note.plan == publication.plan
                    and self._file(publication).exists()
                ):
                    return
                self.prepare(publication)
            try:
                # The note is written last: if it names this plan, the file is this plan's.
                prepared.replace(self._file(publication))
                _sync_folder(self.folder)
                self._write_note(publication)
            except OSError as error:
                raise self._failed(publication, error) from error

    def abort(self, publication: Publication) -> None:
        """Remove the prepared file of this report.

        If a publisher holds the lock now, leave the file to the next sweep. Safe to repeat: what is gone stays gone,
        and the files of other reports are kept.
        """
        name = self._prepared(publication).name
        self.sweep([Leftover(name=name, interval=publication.interval, plan=publication.plan)])

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    # ------------------------------------------------------------ leftovers of killed processes

    def leftovers(self) -> Sequence[Leftover]:
        """Return the files that any process prepared or began to write; nothing if the folder does not exist."""
        try:
            names = sorted(path.name for path in self.hidden.iterdir())
        except OSError:
            return ()
        return tuple(left for name in names if (left := _leftover(name)) is not None)

    def sweep(self, leftovers: Sequence[Leftover]) -> None:
        """Remove these files, unless another process is publishing now.

        A publisher may be between its check of a file and the rename. Safe to repeat: what is gone stays gone. No
        rows are lost: a prepared file is made of committed files, and is made again if it is missing.
        """
        try:
            with self._locked(wait_s=0):
                for one in leftovers:
                    (self.hidden / one.name).unlink(missing_ok=True)
        except (OSError, OutputBusy):
            return  # the files do no harm, and the next publisher finds them

    # ------------------------------------------------------------ names and notes

    def _file(self, publication: Publication) -> Path:
        return self.folder / f"{publication.interval.part}.jsonl"

    def _prepared(self, publication: Publication) -> Path:
        """Return the path of the prepared file.

        The name contains the report: two attempts at one plan may have different rows, and only one of them is
        committed.
        """
        report = hashlib.sha256((publication.report or "").encode()).hexdigest()[:32]
        return self.hidden / f"{publication.interval.part}.{publication.plan}.{report}.prepared"

    @property
    def _owner_path(self) -> Path:
        return self.hidden / "owner.json"

    def _writing(self, publication: Publication) -> Path:
        """Return a path that only this call uses.

        The name contains the plan, so that the file can be identified if this process is killed.
        """
        return (
            self.hidden
            / f"{publication.interval.part}.{publication.plan}.{uuid.uuid4().hex}.writing"
        )

    def _note_path(self, publication: Publication) -> Path:
        return self.hidden / f"{publication.interval.part}.published"

    def _note(self, publication: Publication) -> Note | None:
        path = self._note_path(publication)
        try:
            return Note(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise Corrupt(
                f"{path}: expected the plan of {self._file(publication)}, found other content.",
                hint=f"compare the file with `tally sql`; then remove {path}, and it is published again. "
                "Nothing was changed.",
            ) from error

    def _owner(self) -> Owner | None:
        """Return the owner of the folder; None if it is not recorded, as in folders that are older than this record.

        Raises Corrupt if the record cannot be read.
        """
        try:
            fields = json.loads(self._owner_path.read_bytes())
            if not isinstance(fields, dict):
                raise ValueError("expected a JSON object")
            if (found := fields.pop("format", None)) != FOLDER_FORMAT:
                raise ValueError(f"expected format {FOLDER_FORMAT!r}, found {found!r}")
            return Owner(**fields)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise Corrupt(
                f"{self._owner_path} does not name the owner of the folder: {error}.",
                hint="run the version of tallystick that wrote it; or find out which output publishes there, and "
                f"remove {self._owner_path}: the next output that publishes takes the folder. Nothing was changed.",
            ) from error

    def _taken(self, own: Owner) -> Owner:
        """Record the owner of the folder if no other process has done so by now. Return the recorded owner.

        Safe to repeat: the record is read again under the lock, and renamed only when it is complete.
        """
        with self._locked():
            if (owner := self._owner()) is not None:
                return owner
            # One name for all processes: only the holder of the lock uses it, and overwrites what a killed one left.
            fresh = self._owner_path.with_suffix(".writing")
            with fresh.open("wb") as file:
                file.write(json.dumps({"format": FOLDER_FORMAT, **asdict(own)}).encode())
                _sync(file)
            fresh.replace(self._owner_path)
            _sync_folder(self.hidden)
            return own

    def _write_note(self, publication: Publication) -> None:
        note = Note(
            plan=publication.plan, generation=publication.generation, rows=len(publication.rows)
        )
        fresh = self._writing(publication)
        with fresh.open("xb") as file:
            file.write(json.dumps(asdict(note)).encode())
            _sync(file)
        fresh.replace(self._note_path(publication))
        _sync_folder(self.hidden)

    # ------------------------------------------------------------ the lock

    @contextmanager
    def _locked(self, wait_s: float | None = None) -> Iterator[None]:
        """Hold the folder's lock, which the kernel releases when the process ends.

        Raises OutputBusy if another process still holds it after `wait_s` seconds (by default `lock_s`).
        """
        self._make_folders()
        deadline = time.monotonic() + (self.lock_s if wait_s is None else wait_s)
        with (self.hidden / "lock").open("ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise OutputBusy(
                            f"another process has locked {file.name} for {self.lock_s:g} s: it is publishing into "
                            f"output {self.declared.name}, or is stopped.",
                            hint="try again later; run `fuser` to find the process.",
                        ) from None
                    time.sleep(PAUSE_S)
            yield

    def _failed(self, of: Publication | str, error: OSError) -> ScratchFull | SettingsError:
        what = f"{of}: {error.filename or self.folder}: {error.strerror}."
        if error.errno == errno.ENOSPC:
            return ScratchFull(what, hint="free some space there; the tables are committed.")
        return SettingsError(
            what, hint="correct the folder or its rights; the tables are committed."
        )


def _leftover(name: str) -> Leftover | None:
    """Return the leftover that has this hidden name, or None.

    None if the file is a note, the owner, the lock or not tallystick's.
    """
    found = _SET_ASIDE.fullmatch(name)
    if found is None:
        return None
    try:
        start, end = keys.part_interval(found[1])
        return Leftover(
            name=name, interval=Interval(start=start, end=end), plan=keys.PlanId(found[2])
        )
    except ValueError:
        return None


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    # A rename is on the disk only when its folder is synced (fsync(2)).
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
