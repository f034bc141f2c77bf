"""Polls a catalog: begins a session, reads both tables in it, and notes what it saw and how long each step took."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from requests import HTTPError

from bench.parts.polls_history import TABLES, Client, Counts, Mode, Pair, Poll
from bench.parts.polls_workers import Progress
from tallystick.catalog.versions import ExactCommit, parse_prefix
from tallystick.format import keys
from tallystick.runtime import whole_ms
from tallystick.tables.sql import EXTENSIONS, _extension_file

HELD_S = 2.0
PAST_S = 10
RETRY_S = 5.0
MODES: tuple[Mode, ...] = (
    *("newest", "token", "newest", "latest", "version"),
    *("newest", "instant", "token", "newest", "latest"),
)
_DUCKDB_STATUS = re.compile(r"status code \(\w+_(\d{3})\)")
_ROWS_OF = (
    f"SELECT number, count(*) FROM lakes.{{}}.{TABLES[0]} GROUP BY number",
    f"SELECT number, sum(amount)::bigint FROM lakes.{{}}.{TABLES[1]} GROUP BY number",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPlaces:
    """The addresses of a catalog without tokens and of one with a token, the lake's name in them, and that of S3."""

    free: str
    guarded: str
    token: str
    lake: str
    s3: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PollKind:
    """What a poll does. `held`: a commit lands between the reads of the two tables, unless it takes too long."""

    client: Client
    mode: Mode
    scans: bool
    held: bool
    first: int

    @classmethod
    def of(cls, number: int) -> PollKind:
        """Return the kind of a poll: each mode, alone and with rows, with both orders of the tables.

        One in 19 polls is of DuckDB, which always reads rows. It gets no mode in which the tables may differ.
        """
        mode = MODES[number % len(MODES)]
        by_duckdb = number % 19 == 5
        return cls(
            client="duckdb" if by_duckdb else "pyiceberg",
            mode="newest" if by_duckdb and mode == "latest" else mode,
            scans=by_duckdb or number % 19 == 11,
            held=number % 23 == 3,
            first=number // len(MODES) % 2,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PollFailure:
    """A poll that ended with an error. `status`: that of HTTP, if there is one. `step`: what failed."""

    number: int
    client: Client
    mode: Mode
    step: str
    kind: str
    status: int | None
    retry_after: str | None
    message: str
    after_s: float

    @property
    def is_retryable(self) -> bool:
        """True if the answer requests the client to try again later: 503 with Retry-After, which DuckDB does not show."""
        return self.status == 503 and (self.retry_after is not None or self.client == "duckdb")


@dataclass(slots=True)
class Steps:
    """The seconds that each step took, and the step that is running."""

    took_s: list[tuple[str, float]] = field(default_factory=list)
    running: str = ""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        self.running = name
        began_s = time.perf_counter()
        yield
        self.took_s.append((name, time.perf_counter() - began_s))


class Poller:
    """Polls until the end. A poll of mode `version` names the version of the session before it."""

    def __init__(self, places: CatalogPlaces, progress: Progress) -> None:
        self._places = places
        self._progress = progress
        self._last: int | None = None
        self.polls: list[Poll] = []
        self.failures: list[PollFailure] = []

    def run(self) -> None:
        """Poll until the end of the run."""
        while not self._progress.is_ended:
            self.poll(self._progress.next_number())

    def poll(self, number: int) -> None:
        """Make one poll, and keep what it saw or its error. Safe to repeat: it only reads."""
        kind = PollKind.of(number)
        steps = Steps()
        began_s = time.time()
        try:
            found = self._by_duckdb if kind.client == "duckdb" else self._by_pyiceberg
            self.polls.append(found(number, kind, steps))
            self._progress.add_poll()
        except Exception as error:  # noqa: BLE001 - counted by its kind; most kinds end the run as failed
            self._failed(number, kind, steps, error, time.time() - began_s)

    def _failed(
        self, number: int, kind: PollKind, steps: Steps, error: Exception, after_s: float
    ) -> None:
        """Keep an error, and wait as long as the answer requests."""
        status, retry_after = http_answer(error)
        failure = PollFailure(
            number=number,
            client=kind.client,
            mode=kind.mode,
            step=steps.running,
            kind=type(error).__name__,
            status=status,
            retry_after=retry_after,
            message=" ".join(str(error).split())[:300],
            after_s=after_s,
        )
        self.failures.append(failure)
        if failure.is_retryable:
            self._progress.wait_for(lambda: False, limit_s=float(retry_after or RETRY_S))
        else:
            self._progress.add_failure()

    def _by_pyiceberg(self, number: int, kind: PollKind, steps: Steps) -> Poll:
        mode, asked, warehouse = self._selection(number, kind)
        began_s = time.time()
        with steps.step("config"):
            catalog = session(self._places, mode, warehouse)
        with closing(catalog):
            tables: dict[int, Table] = {}
            for place, table in enumerate((kind.first, 1 - kind.first)):
                if place and kind.held:
                    self._hold()
                with steps.step("table"):
                    tables[table] = catalog.load_table((self._places.lake, TABLES[table]))
        counts = None
        if kind.scans:
            with steps.step("rows by PyIceberg"):
                counts = counts_of(tables[0]), counts_of(tables[1])
        version = session_version(catalog)
        self._last = version if version is not None else self._last
        return Poll(
            number=number,
            client=kind.client,
            mode=mode,
            began_s=began_s,
            ended_s=time.time(),
            steps_s=tuple(steps.took_s),
            first=kind.first,
            asked=asked,
            session=version,
            pair=pair_of(tables[0], tables[1]),
            counts=counts,
        )

    def _by_duckdb(self, number: int, kind: PollKind, steps: Steps) -> Poll:
        mode, asked, warehouse = self._selection(number, kind)
        url, login = self._places.free, "AUTHORIZATION_TYPE 'none'"
        if mode == "token":
            url, login = self._places.guarded, f"TOKEN '{self._places.token}'"
        found: dict[int, Counts] = {}
        began_s = time.time()
        with connected(self._places.s3) as connection:
            with steps.step("DuckDB: attach"):
                connection.execute(
                    f"ATTACH '{warehouse}' AS lakes (TYPE iceberg, ENDPOINT '{url}', {login})"
                )
            for place, table in enumerate((kind.first, 1 - kind.first)):
                if place and kind.held:
                    self._hold()
                with steps.step("DuckDB: rows of a table"):
                    sql = _ROWS_OF[table].format(self._places.lake)
                    found[table] = dict(connection.execute(sql).fetchall())
        return Poll(
            number=number,
            client=kind.client,
            mode=mode,
            began_s=began_s,
            ended_s=time.time(),
            steps_s=tuple(steps.took_s),
            first=kind.first,
            asked=asked,
            counts=(found[0], found[1]),
        )

    def _selection(self, number: int, kind: PollKind) -> tuple[Mode, int | datetime | None, str]:
        """Return the mode, the version or instant that is asked for, and the warehouse."""
        match kind.mode:
            case "version" if self._last is not None:
                return "version", self._last, f"{self._places.lake}@{self._last}"
            case "instant":
                past = timedelta(milliseconds=number % 100 * PAST_S * 10)
                asked = whole_ms(datetime.now(UTC)) - past
                return "instant", asked, f"{self._places.lake}@{keys.instant(asked)}"
            case "latest":
                return "latest", None, "latest"
            case "token":
                return "token", None, ""
            case _:
                return "newest", None, ""

    def _hold(self) -> None:
        """Keep the session until the next commit."""
        before = self._progress.commits
        self._progress.wait_for(lambda: self._progress.commits > before, limit_s=HELD_S)


def poll(places: CatalogPlaces, progress: Progress) -> tuple[list[Poll], list[PollFailure]]:
    """Poll until the end, and return what was seen; the function of a process."""
    poller = Poller(places, progress)
    poller.run()
    return poller.polls, poller.failures


def session(places: CatalogPlaces, mode: Mode, warehouse: str) -> RestCatalog:
    """Begin a session of PyIceberg."""
    if mode == "token":
        return RestCatalog("lakes", uri=places.guarded, warehouse=warehouse, token=places.token)
    return RestCatalog("lakes", uri=places.free, warehouse=warehouse)


def session_version(catalog: RestCatalog) -> int | None:
    """Return the version that a session's prefix names; None if it follows the newest one."""
    (*_, one) = parse_prefix(catalog.properties["prefix"]).lakes or (None,)
    return one.at.version if one is not None and isinstance(one.at, ExactCommit) else None


def pair_of(first: Table, second: Table) -> Pair:
    """Return the keys of the metadata of two tables in their lake."""
    keys_of = [
        f"tables/{table.metadata_location.partition('/tables/')[2]}" for table in (first, second)
    ]
    return keys_of[0], keys_of[1]


def counts_of(table: Table) -> Counts:
    """Read a table, and return its rows by interval."""
    rows: pa.Table = table.scan().to_arrow()
    if "amount" not in rows.column_names:
        rows = rows.append_column("amount", pa.array([1] * rows.num_rows, pa.int64()))
    grouped = rows.group_by("number").aggregate([("amount", "sum")])
    return dict(zip(grouped["number"].to_pylist(), grouped["amount_sum"].to_pylist(), strict=True))


def connected(s3: str) -> duckdb.DuckDBPyConnection:
    """Return a new DuckDB that can read the bucket.

    It is for one session: after ATTACH, DETACH and ATTACH of another catalog in one DuckDB 1.5.5, requests to the second
    one, with their token, may go to the first one.
    """
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    for extension in EXTENSIONS:
        connection.execute(f"LOAD '{_extension_file(extension)}'")
    connection.execute(
        "CREATE SECRET (TYPE s3, KEY_ID 'test', SECRET 'test-secret', REGION 'us-east-1', "
        f"ENDPOINT '{s3.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path')"
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    return connection


def http_answer(error: BaseException) -> tuple[int | None, str | None]:
    """Return the status and the header Retry-After of the answer that caused an error, or None."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HTTPError) and cause.response is not None:
            return cause.response.status_code, cause.response.headers.get("Retry-After")
        if isinstance(cause, duckdb.HTTPException):
            return cause.status_code, None
        if isinstance(cause, duckdb.Error) and (found := _DUCKDB_STATUS.search(str(cause))):
            return int(found[1]), None
        cause = cause.__cause__ or cause.__context__
    return None, None
