"""The use case `register`: register the tables of the last commit in catalogs outside the lake. No JVM.

For each pending registration: read the root and its record, set the pointers in the catalog, record by a swap that it
has that version. If a publisher dies, the next one reads the pointers and continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tallystick.errors import Corrupt, OutputBusy, OutputRefused, OutputUnavailable, TallystickError
from tallystick.format import keys
from tallystick.format.registrations import Registration
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.lake.room import RoomGiver, Turn
from tallystick.operations.publish import NotPublished
from tallystick.outputs.registrations.port import Pointer, Registrar
from tallystick.protocol import registering
from tallystick.protocol.registering import Ahead, pointer_step

log = logging.getLogger(__name__)

# The rounds of one call while commits and other publishers go on. What is pending then is left to the next publisher.
ROUNDS_MAX = 10
OpensRegistrar = Callable[[], Registrar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registration that now has the tables of a version."""

    registration: str
    version: int
    tables: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPointers:
    """The tables of one commit as pointers."""

    record: keys.RecordKey
    pointers: tuple[Pointer, ...]


def register(
    lake: Lake,
    registrars: Mapping[str, OpensRegistrar],
    *,
    targets: Mapping[str, str],
    watch: Callable[[Registered], None] = lambda _: None,
) -> tuple[NotPublished, ...]:
    """Register the last commit in all pending registrations of these; return those that failed.

    `registrars` has a function per registration that opens its registrar; it is called only if the registration is
    pending. `targets` has the target of every registration that the pipeline declares.

    Safe to repeat: pointers that are right are left alone, and none is ever set back. A registration that fails does not
    delay the others.
    """
    failed: list[NotPublished] = []
    turn = RoomGiver(store=lake.store, runtime=lake.runtime)
    try:
        declare(lake, targets, turn=turn)
    except TallystickError as error:
        return tuple(NotPublished(output=n, interval=None, error=error) for n in registrars)
    for name, opens in registrars.items():
        try:
            _register(lake, name, opens, watch, turn)
        except Exception as error:  # noqa: BLE001 - a user's own registrar may raise anything, and must not block others
            failed.append(NotPublished(output=name, interval=None, error=_ours(name, error)))
    return tuple(failed)


def declare(lake: Lake, targets: Mapping[str, str], *, turn: Turn | None = None) -> None:
    """Record the declared registrations in the root, if they are not there yet.

    Raises InvalidPipeline if one has another target in the root. Safe to repeat: no swap is made if the root has them.
    """

    def declared(snapshot: Snapshot) -> dict[str, Registration]:
        return registering.with_declared(snapshot.root.registrations, targets, snapshot.root.record)

    def step(snapshot: Snapshot) -> Update[None] | NoUpdate[None]:
        root, registrations = snapshot.root, declared(snapshot)
        if registrations == root.registrations:
            return NoUpdate()
        return Update(
            tables=root.tables,
            topics=root.topics,
            ledger=snapshot.around(()),
            registrations=registrations,
        )

    # A swap may wait for other writers: the root is read before it is known that one is needed.
    now = lake.load_existing()
    if declared(now) != now.root.registrations:
        lake.swap(step, turn=turn)


def _register(
    lake: Lake, name: str, opens: OpensRegistrar, watch: Callable[[Registered], None], turn: Turn
) -> None:
    registrar: Registrar | None = None
    busy: OutputBusy | None = None
    done: keys.RecordKey | None = None
    try:
        for _ in range(ROUNDS_MAX):
            version = lake.read(partial(_wanted, lake, name, done))
            if version is None:
                return
            registrar = registrar or opens()
            try:
                later = registrar.register(version.pointers)
            except OutputBusy as error:
                busy = error  # another publisher was faster: the next round reads what it did
                continue
            busy = None
            if later:
                # Another publisher has registered a later version: the next round reads that version from the root.
                _refuse_set_back(lake, name, later)
                continue
            done = version.record
            if _note(lake, name, version.record, turn):
                watch(
                    Registered(
                        registration=name,
                        version=keys.record_version(version.record),
                        tables=len(version.pointers),
                    )
                )
        if busy is not None:
            raise busy
    finally:
        _close(name, registrar)


def _wanted(
    lake: Lake, name: str, done: keys.RecordKey | None, snapshot: Snapshot
) -> VersionPointers | None:
    """Return the version to register; None if the registration has it.

    `done`: the version that this call has registered. If the root has a later one by then, it is registered too, even if
    another publisher has done so: a catalog without a condition may have taken this call's version after the other's.
    """
    root = snapshot.root
    declared = name in root.registrations and root.registrations[name].declared
    overtaken = done is not None and done != root.record and declared
    if not overtaken and name not in registering.pending(root):
        return None
    return _last_version(lake, snapshot)


def _last_version(lake: Lake, snapshot: Snapshot) -> VersionPointers:
    """Return the tables of the last commit. Raises Corrupt if its record is gone."""
    key = snapshot.root.record
    assert key is not None  # only a lake with a commit has something pending
    record = lake.record(key)
    if record is None:
        raise Corrupt(
            f"{lake.where(key)} is gone, and registrations need the tables that it names.",
            hint="restore it from a bucket version; nothing was registered.",
        )
    return VersionPointers(
        record=key,
        pointers=tuple(
            Pointer(table=name, uri=lake.where(table.metadata), columns=table.columns)
            for name, table in sorted(record.tables.items())
            if table.metadata is not None
        ),
    )


def _refuse_set_back(lake: Lake, name: str, later: Mapping[str, str]) -> None:
    """Raise OutputRefused if a pointer is later than the root.

    Each publisher reads the root before it sets a pointer. So a root that is read after the pointer has the same version
    or a later one, unless it was set back or another program has set the pointer.
    """
    now = lake.read(lambda snapshot: _last_version(lake, snapshot))
    for pointer in now.pointers:
        found = later.get(pointer.table)
        if found is not None and isinstance(pointer_step(found, pointer.uri), Ahead):
            raise OutputRefused(
                f"registration {name}: table {pointer.table}: expected {pointer.uri} or an earlier version, found "
                f"{found}, which is later than the lake.",
                hint="run `tally verify`: root.json may have been set back. If the lake is right, drop the table from "
                "the catalog without its files, and clear `publish`. Nothing was changed.",
            )


def _note(lake: Lake, name: str, record: keys.RecordKey, turn: Turn) -> bool:
    """Record by a swap that a registration has a version; return True if this call recorded it.

    Safe to repeat: a later version in the root stays (I14), and the root shows if it was recorded already (C9).
    """

    def step(snapshot: Snapshot) -> Update[bool] | NoUpdate[bool]:
        root = snapshot.root
        registrations = registering.with_registered(root.registrations, name, record)
        if registrations is None:
            return NoUpdate(value=False)
        return Update(
            tables=root.tables,
            topics=root.topics,
            ledger=snapshot.around(()),
            registrations=registrations,
            value=True,
        )

    return lake.swap(step, turn=turn)


def _ours(registration: str, error: Exception) -> TallystickError:
    if isinstance(error, TallystickError):
        return error
    found = OutputUnavailable(
        f"registration {registration}: {type(error).__name__}: {error}.",
        hint="wait for the retry. If the error comes back, fix the registrar: it must raise a TallystickError.",
    )
    found.__cause__ = error
    return found


def _close(name: str, registrar: Registrar | None) -> None:
    """Close a registrar if it was opened. Safe to repeat, as `Registrar.close` is."""
    try:
        if registrar is not None:
            registrar.close()
    except Exception as error:  # noqa: BLE001 - as above: the root has what was done, and the process ends soon
        log.warning("registration %s was not closed: %s: %s", name, type(error).__name__, error)
