"""Mutants of the swap, and of the decisions and writes of a commit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tallystick.engine import attempt, upload
from tallystick.errors import OutcomeUnknown, Superseded
from tallystick.format import keys
from tallystick.format.page import Entry, Granted
from tallystick.lake import Lake, Update
from tallystick.lake import lake as lakes
from tallystick.operations.commit import attempt as commit_module
from tallystick.protocol import committing
from tallystick.store import Applied, Unknown
from tallystick.store.s3 import S3Store


@contextmanager
def without_own_checks() -> Iterator[None]:
    """Switch off tallystick's own checks before a swap, of a report and of an attempt."""
    with ExitStack() as stack:
        for module, name in (
            (lakes, "check_swap"),
            (lakes, "check_pages"),
            (commit_module, "check_report"),
            (attempt, "account_problem"),
        ):
            stack.enter_context(patch.object(module, name, lambda *_: None))
        yield


# ---------------------------------------------------------------- the swap


@contextmanager
def no_if_match() -> Iterator[None]:
    """PUT the root without a condition."""
    real = S3Store.replace

    def unconditional(self: Any, key: str, body: bytes, *, expected: Any) -> Any:
        if key != keys.ROOT:
            return real(self, key, body, expected=expected)
        full_key = self._address.full_key(key)
        answer = self._writer.put_object(**self._common, Key=full_key, Body=body)
        return Applied(etag=answer["ETag"])

    with patch.object(S3Store, "replace", unconditional):
        yield


@contextmanager
def blind_retry() -> Iterator[None]:
    """Send a swap in doubt again, over the current root."""

    def again(self: Lake, body: bytes, etag: Any) -> bool:
        while isinstance(self.store.replace(keys.ROOT, body, expected=etag), Unknown):
            stored = self.store.get(keys.ROOT)
            assert stored is not None
            etag = stored.etag
        return True

    with patch.object(Lake, "_replace_root", again):
        yield


def _deleting_on_failure(swap: Callable[[Any], bool]) -> AbstractContextManager[Any]:
    """Delete the files of the attempt in a commit that appears to have failed."""
    real = commit_module.commit

    def delete_files(lake: Lake, tables: Any, *, plan_key: str, report_key: str) -> Any:
        try:
            return real(lake, tables, plan_key=plan_key, report_key=report_key)
        except (OutcomeUnknown, Superseded):
            report = lake.report(report_key)
            lake.store.delete([f.key for f in report.files] if report else [])
            raise

    def once(self: Lake, body: bytes, etag: Any) -> bool:
        return swap(self.store.replace(keys.ROOT, body, expected=etag))

    stack = ExitStack()
    stack.enter_context(patch.object(commit_module, "commit", delete_files))
    stack.enter_context(patch.object(Lake, "_replace_root", once))
    return stack


def delete_on_timeout() -> AbstractContextManager[Any]:
    """Treat a swap whose reply is lost as failed: the task deletes its files and fails."""

    def swap(outcome: Any) -> bool:
        if isinstance(outcome, Unknown):
            raise OutcomeUnknown("timeout.", hint="none.")
        return isinstance(outcome, Applied)

    return _deleting_on_failure(swap)


def conflict_counts_as_lost() -> AbstractContextManager[Any]:
    """Treat 409 as a lost race: the task deletes its files."""

    def swap(outcome: Any) -> bool:
        if isinstance(outcome, Unknown) and "409" in outcome.because:
            raise Superseded("409.", hint="none.")
        return isinstance(outcome, Applied)

    return _deleting_on_failure(swap)


@contextmanager
def pointer_before_data() -> Iterator[None]:
    """Upload data files after the swap that names them: the report has their future keys and ETags."""
    waiting: list[tuple[Any, str, Any]] = []
    real_commit = commit_module.commit

    def promise(self: Any, table: str, path: Any) -> tuple[str, str]:
        key = keys.data_file(table, self.plan, self.attempt, self.task, self.runtime.uuid())
        body = path.read_bytes()
        waiting.append((self.store, key, body))
        return key, f'"{hashlib.md5(body).hexdigest()}"'

    def then_upload(*args: Any, **how: Any) -> Any:
        done = real_commit(*args, **how)
        while waiting:
            store, key, body = waiting.pop()
            store.create(key, body)
        return done

    with (
        without_own_checks(),
        patch.object(upload.AttemptPrefix, "upload", promise),
        patch.object(commit_module, "commit", then_upload),
    ):
        yield


# ---------------------------------------------------------------- decisions and writes of a commit


@contextmanager
def never_already_committed() -> Iterator[None]:
    """Never return AlreadyCommitted: a repeat publishes again."""
    real = committing.decide_commit

    def forgetful(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        decision = real(root, entry, plan, **more)
        if not isinstance(decision, committing.AlreadyCommitted):
            return decision
        granted = Granted(plan=plan.key, request=plan.request, generation=plan.generation + 1)
        return committing.Publish(
            before=replace(entry, granted=granted, generation=plan.generation + 1)
        )

    with (
        without_own_checks(),
        patch.object(committing, "decide_commit", forgetful),
        patch.object(commit_module, "_files_of", lambda *_: {}),
    ):
        yield


@contextmanager
def zombie_commits() -> Iterator[None]:
    """Check neither plan key nor generation: every plan commits."""
    real = committing.decide_commit

    def anyone(root: Any, entry: Any, plan: Any, **more: Any) -> Any:
        decision = real(root, entry, plan, **more)
        if not isinstance(decision, committing.GrantLost):
            return decision
        mine = Granted(plan=plan.key, request=plan.request, generation=plan.generation)
        whole = Entry(
            interval=plan.interval, generation=plan.generation, granted=mine, committed=None
        )
        return committing.Publish(before=whole)

    with without_own_checks(), patch.object(committing, "decide_commit", anyone):
        yield


@contextmanager
def replacement_appends() -> Iterator[None]:
    """Add the files of a replacement without removing those that it replaces."""
    with patch.object(commit_module, "_files_of", lambda *_: {}):
        yield


@contextmanager
def report_from_a_list() -> Iterator[None]:
    """Commit every file below the plan's prefix, not those that the report names."""
    real = commit_module.commit

    def listed(lake: Lake, tables: Any, *, plan_key: str, report_key: str) -> Any:
        report, read = lake.report(report_key), Lake.report
        assert report is not None
        known = {f.key: f for f in report.files}
        like = {f.table: f for f in report.files}
        for table, file in like.items():
            whole = f"tables/{table}/data/{plan_key.removeprefix('plans/').removesuffix('.json')}/"
            for line in lake.store.list(whole):
                listed = replace(file, key=line.key, etag=line.etag, size_bytes=line.size_bytes)
                known.setdefault(line.key, listed)
        every = replace(report, files=tuple(known.values()))
        with patch.object(
            Lake, "report", lambda self, key: every if key == report_key else read(self, key)
        ):
            return real(lake, tables, plan_key=plan_key, report_key=report_key)

    with without_own_checks(), patch.object(commit_module, "commit", listed):
        yield


@contextmanager
def shared_prefix() -> Iterator[None]:
    """Write the same keys in every attempt, so that the later one overwrites."""

    def overwrite(self: Any, table: str, path: Any) -> tuple[str, str]:
        key = keys.data_file(table, self.plan, "attempt", self.task, "0" * 32)
        full_key = self.store._address.full_key(key)
        body = path.read_bytes()
        answer = self.store._writer.put_object(**self.store._common, Key=full_key, Body=body)
        return key, answer["ETag"]

    with without_own_checks(), patch.object(upload.AttemptPrefix, "upload", overwrite):
        yield


@contextmanager
def other_partitioning_commits() -> Iterator[None]:
    """Commit a granted plan although the columns or the partitioning of its tables have changed since."""
    with patch.object(committing, "differs_from_root", lambda *_, **__: None):
        yield


def _without_dead_letters() -> AbstractContextManager[Any]:
    real = commit_module._stage_tables

    def all_but_dead_letters(
        lake: Any, tables: Any, snapshot: Any, plan: Any, report: Any, dropped: Any
    ) -> Any:
        staged = real(lake, tables, snapshot, plan, report, dropped)
        return {**staged, "dead_letters": snapshot.root.tables["dead_letters"]}

    return patch.object(commit_module, "_stage_tables", all_but_dead_letters)


@contextmanager
def dead_letters_not_committed() -> Iterator[None]:
    """Write dead letters without committing them to their table."""
    with _without_dead_letters():
        yield


@contextmanager
def dead_letters_in_another_swap() -> Iterator[None]:
    """Commit dead letters in a second swap."""
    real = commit_module.commit

    def in_two_swaps(lake: Lake, tables: Any, *, plan_key: str, report_key: str) -> Any:
        with _without_dead_letters():
            done = real(lake, tables, plan_key=plan_key, report_key=report_key)
        report = lake.report(report_key)
        files = [f for f in report.files if f.table == "dead_letters"] if report else []
        if done.already or not files:
            return done

        def follow(snapshot: Any) -> Update[None]:
            table = snapshot.root.tables["dead_letters"]
            state = commit_module.TableState(
                name="dead_letters",
                uuid=table.uuid,
                metadata=table.metadata,
                columns=table.columns,
                partition_by=table.partition_by,
            )
            metadata = tables.stage(
                state, add=files, drop=frozenset(), properties={}, now=lake.runtime.now()
            )
            both = {**snapshot.root.tables, "dead_letters": replace(table, metadata=metadata)}
            ledger = snapshot.ledger(done.interval.start, done.interval.end)
            return Update(tables=both, topics=snapshot.root.topics, ledger=ledger, value=None)

        lake.swap(follow)
        return done

    with patch.object(commit_module, "commit", in_two_swaps):
        yield


@contextmanager
def aborted_interval_skipped() -> Iterator[None]:
    """Skip a commit without rows."""
    real = commit_module.commit

    def skip(lake: Lake, tables: Any, *, plan_key: str, report_key: str) -> Any:
        report = lake.report(report_key)
        if report is not None and not report.files:
            return None
        return real(lake, tables, plan_key=plan_key, report_key=report_key)

    with patch.object(commit_module, "commit", skip):
        yield


@contextmanager
def chain_truncated() -> Iterator[None]:
    """Write each record without its parent."""
    real = lakes.Record

    def without_parent(**fields: Any) -> Any:
        return real(**{**fields, "parent": None})

    with patch.object(lakes, "Record", without_parent):
        yield
