"""A table in PostgreSQL that holds, for each key, the row of the latest interval that has the key.

The rows are copied into a temporary table first, invisible to readers. Then one transaction per interval does
everything: it locks the output's row (so publishers run one after the other), reads the progress row, changes the
history, changes the table accordingly, and updates the progress row. That transaction is the decision: if its answer
is lost, the progress row shows the outcome.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import errors, sql

from tallystick.connections.postgres import PostgresSettings
from tallystick.errors import OutputRefused, listed
from tallystick.format import keys
from tallystick.outputs.port import Publication, Scope
from tallystick.outputs.postgres import PostgresOutput, statements
from tallystick.outputs.postgres.catalog import DatabaseTable, read_table
from tallystick.outputs.postgres.history import managed_columns
from tallystick.outputs.postgres.session import Session, busy, translated
from tallystick.outputs.postgres.stage import Staged, stage
from tallystick.outputs.postgres.statements import SCHEMA, Statements


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPlan:
    """The plan of an interval that the database holds, according to its progress row."""

    end: object
    generation: int
    plan: keys.PlanId
    rows: int


class PostgresTable:
    """The output that a PostgresOutput declares."""

    def __init__(self, declared: PostgresOutput, settings: Callable[[], PostgresSettings]) -> None:
        self.declared, self._settings = declared, settings
        self._session: Session | None = None
        self._owner: str | None = None
        self._epoch = 0
        self._staged: Staged | None = None
        self._secrets: tuple[str, ...] = ()
        self.where = f"table {declared.into} of connection {declared.postgres}"

    # ------------------------------------------------------------ the port

    def begin(self, scope: Scope) -> None:
        """Take the output. Creates the side tables.

        If another publisher had the output before, it finds a new epoch in its transaction. Raises OutputRefused if
        the table belongs to another output. Safe to repeat: the last process that took the output has it.
        """
        what, owner = f"output {self.declared.name}", owner_of(scope, self.declared.name)
        with self._translated(what):
            session = self._connected()
            self._create_side_tables(session)
            with session.transaction():
                try:
                    self._epoch = self._take(session, scope, owner)
                except errors.LockNotAvailable:
                    raise self._locked_too_long(what) from None
        self._owner = owner

    def prepare(self, publication: Publication) -> None:
        """Refuse all that the table would not accept, before it gets any row.

        If the table has rules beyond its key, and `begin` was called, also rehearse the publication and roll it back.
        Safe to repeat: it leaves temporary tables and the columns of the history.
        """
        with self._translated(str(publication)):
            if self._is_there(publication):
                return
            self._staged = None  # checked again: the table may have been corrected since
            staged = self._stage(publication)
            if self._owner is not None:
                self._publish(publication, staged, rows=False)
                if staged.target.more_rules:
                    self._rehearse(publication, staged)

    def publish(self, publication: Publication, *, resumed: bool) -> None:
        """Write the plan's rows of this interval to the table, in one transaction.

        Safe to repeat: that transaction updates the progress row, too, which names the plan that is there. A
        publisher that is late finds another epoch or a newer generation under the lock, and changes nothing.
        """
        del resumed  # the progress row shows what is there
        assert self._owner is not None, "begin comes first"
        with self._translated(str(publication)):
            if not self._is_there(publication):
                self._publish(publication, self._stage(publication))

    def abort(self, publication: Publication) -> None:
        """Do nothing, because nothing that was set aside outlives the session. Safe to repeat."""

    def close(self) -> None:
        """Close the session. The server drops its temporary tables. Safe to repeat."""
        if self._session is not None:
            self._session.close()
        self._session, self._staged = None, None

    # ------------------------------------------------------------ taking the output

    def _create_side_tables(self, session: Session) -> None:
        schema, *tables = session.one("find side tables", statements.THERE)
        if schema and all(tables):
            return
        with session.transaction():
            session.run("wait to create", statements.CREATE_LOCK)
            if not schema:
                session.run("create the schema", statements.CREATE_SCHEMA)
            session.run("create outputs", statements.CREATE_OUTPUTS)
            session.run("create progress", statements.CREATE_PROGRESS)

    def _take(self, session: Session, scope: Scope, owner: str) -> int:
        declared = self.declared
        key = sorted(declared.key)
        session.run(
            "register",
            statements.REGISTER,
            (
                *(owner, scope.lake, scope.pipeline, declared.name),
                *(declared.into, key, history_of(owner)),
            ),
        )
        taken = session.one("take", statements.TAKE, (owner,))
        if taken is None:
            lake, pipeline, name = session.one("read the owner", statements.OWNER, (declared.into,))
            raise OutputRefused(
                f"output {declared.name}: {self.where} belongs to output {name} of pipeline {pipeline} in {lake}.",
                hint="declare a table for each output: two outputs in one table would overwrite each other. If the other "
                "output is retired, release its table as in docs/reference/outputs.md. Nothing was written.",
            )
        epoch, target, key_before = taken
        if (target, sorted(key_before)) != (declared.into, key):
            raise OutputRefused(
                f"output {declared.name}: expected {target} with the key {listed(key_before)} as published, found "
                f"{declared.into} with the key {listed(key)}.",
                hint="restore the declaration, or declare an output with another name and table. Nothing was written.",
            )
        return int(epoch)

    # ------------------------------------------------------------ one publication

    def _stage(self, publication: Publication) -> Staged:
        """Stage the plan's rows in the session's own table and check them; only once if `publish` follows `prepare`."""
        session = self._connected()
        if self._staged is None or self._staged.plan != publication.plan:
            self._staged = None
            self._staged = stage(session, self.declared, self._table(session), publication)
        return self._staged

    def _publish(self, publication: Publication, staged: Staged, *, rows: bool = True) -> None:
        """Run the transaction. Without `rows`, only check that it may run, and prepare the history."""
        session = self._connected()
        with session.transaction():
            held = self._lock(session, publication)
            if held is not None and held.plan == publication.plan:
                return
            steps = self._steps(session, publication, staged)
            self._check_history(session, steps, publication, held)
            if rows:
                self._write(session, steps, publication, staged)

    def _rehearse(self, publication: Publication, staged: Staged) -> None:
        """Run the whole publication and roll it back.

        If CHECK, foreign keys, triggers or partitions refuse a row, this raises before the interval is in progress.
        """
        session = self._connected()
        try:
            with session.transaction():
                self._lock(session, publication)
                self._write(session, self._steps(session, publication, staged), publication, staged)
                session.run("check deferred constraints", statements.ALL_NOW)
                raise _RolledBackError
        except _RolledBackError:
            pass

    def _write(
        self, session: Session, steps: Statements, publication: Publication, staged: Staged
    ) -> None:
        interval = {"start": publication.interval.start, "end": publication.interval.end}
        session.run("store the keys", steps.store_keys(), interval)
        session.run("analyze the keys", statements.analyze(statements.TOUCHED))
        session.run("delete from the history", steps.delete_history(), interval)
        session.run("insert into the history", steps.insert_history(), interval)
        session.run("delete from the table", steps.delete_rows())
        session.run("upsert into the table", steps.upsert_rows())
        session.run(
            "record progress",
            statements.RECORD_PROGRESS,
            (
                *(self._owner, publication.interval.start, publication.interval.end),
                *(publication.generation, publication.plan, staged.rows),
            ),
        )
        session.run("count intervals", statements.COUNT_INTERVALS, (self._owner, self._owner))

    # ------------------------------------------------------------ the state of the database, and the lock

    def _is_there(self, publication: Publication) -> bool:
        """Return True if the progress row names this plan. No publisher reverts that."""
        if self._owner is None:
            return False
        held = self._held(self._connected(), publication)
        return held is not None and held.plan == publication.plan

    def _lock(self, session: Session, publication: Publication) -> HeldPlan | None:
        """Lock the output's row until the transaction ends, and return the plan that the database holds.

        Raises OutputBusy if another publisher has the output, OutputRefused if the state of the database is in doubt.
        """
        try:
            found = session.one("lock", statements.LOCK, (self._owner,))
        except errors.LockNotAvailable:
            raise self._locked_too_long(str(publication)) from None
        if found is None:
            raise self._in_doubt(
                publication, "the row of the output in tallystick.outputs is missing"
            )
        epoch, intervals = found
        held = self._held(session, publication)
        if held is not None and held.plan == publication.plan:
            return held
        self._check_epoch(publication, epoch)
        counted = session.one("count progress", statements.COUNT_PROGRESS, (self._owner,))[0]
        if counted != intervals:
            raise self._in_doubt(
                publication,
                f"expected {intervals} written intervals in tallystick.progress, found {counted}",
            )
        self._check_generation(publication, held)
        return held

    def _check_epoch(self, publication: Publication, epoch: int) -> None:
        if epoch != self._epoch:
            raise busy(
                str(publication),
                f"another publisher has taken output {self.declared.name} ({self.where}): expected "
                f"epoch {self._epoch}, found {epoch}",
            )

    def _check_generation(self, publication: Publication, held: HeldPlan | None) -> None:
        """Raise OutputBusy if a newer generation is there, OutputRefused if the ledger has a different one."""
        if held is None:
            if publication.instead_of is not None and len(publication.rows_before):
                raise self._in_doubt(
                    publication,
                    f"expected plan {publication.instead_of} of the ledger in tallystick.progress, found no row of the "
                    "interval",
                )
            return
        content = f"{self.where} has generation {held.generation}, plan {held.plan}"
        if held.generation > publication.generation:
            raise busy(
                str(publication),
                f"{content}, which is newer: it was replaced in the meantime (if it repeats, the lake was reset to an "
                "older state)",
            )
        if held.generation == publication.generation or held.plan != publication.instead_of:
            raise self._in_doubt(
                publication,
                f"{content}, but the ledger replaces plan {publication.instead_of or 'none'} by {publication.plan}",
            )
        if held.end != publication.interval.end:
            raise self._in_doubt(publication, f"{content}, of an interval that ends at {held.end}")

    def _check_history(
        self, session: Session, steps: Statements, publication: Publication, held: HeldPlan | None
    ) -> None:
        """Raise OutputRefused if the history does not have the number of rows that is in the progress row."""
        found = session.one(
            "count before", steps.count_before(), {"start": publication.interval.start}
        )[0]
        wanted = held.rows if held is not None else 0
        if found != wanted:
            raise self._in_doubt(
                publication,
                f"expected {wanted} rows of the interval as in tallystick.progress, found {found} in "
                f"{SCHEMA}.{history_of(self._owner or '')}",
            )

    def _held(self, session: Session, publication: Publication) -> HeldPlan | None:
        found = session.one(
            "progress", statements.READ_PROGRESS, (self._owner, publication.interval.start)
        )
        if found is None:
            return None
        end, generation, plan, rows = found
        return HeldPlan(end=end, generation=generation, plan=plan, rows=rows)

    # ------------------------------------------------------------ the rest

    def _steps(self, session: Session, publication: Publication, staged: Staged) -> Statements:
        history = history_of(self._owner or "")
        managed = managed_columns(session, self.declared, history, staged, publication)
        return Statements(
            target=sql.Identifier(*self.declared.schema_and_table),
            history=sql.Identifier(SCHEMA, history),
            key=tuple(self.declared.key),
            managed=managed,
            staged=frozenset(staged.columns),
        )

    def _table(self, session: Session) -> DatabaseTable | None:
        return read_table(session, *self.declared.schema_and_table)

    def _connected(self) -> Session:
        """Return the session; open a new one if there is none, or if the last one broke."""
        if self._session is None or not self._session.usable:
            self.close()
            settings = self._settings()
            self._secrets = settings.secrets()
            self._session = Session(settings, output=self.declared.name, where=self.where)
        return self._session

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        with translated(what, self.where, lambda: self._secrets):
            yield

    def _locked_too_long(self, what: str) -> Exception:
        assert self._session is not None
        return busy(
            what,
            f"another publisher has locked output {self.declared.name} ({self.where}) for "
            f"{self._session.settings.lock_timeout_s} s",
        )

    def _in_doubt(self, publication: Publication, why: str) -> OutputRefused:
        return OutputRefused(
            f"{publication}: the content of {self.where} is in doubt: {why}.",
            hint="restore the table and the schema tallystick from one backup: they belong together. Other ways are "
            "in docs/reference/outputs.md. Nothing was written.",
        )


class _RolledBackError(Exception):
    """The end of a rehearsal, which rolls it back."""


def owner_of(scope: Scope, output: str) -> str:
    """Return the id of an output in the database: one per lake, pipeline and output."""
    lake = hashlib.sha256(scope.lake.encode()).hexdigest()[:12]
    return f"{scope.pipeline}.{output}.{lake}"


def history_of(owner: str) -> str:
    """Return the name of an output's history in the schema `tallystick`."""
    return f"history_{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
