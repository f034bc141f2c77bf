"""A client of Airflow's REST API. Its methods send the same requests as Airflow's pages in the browser."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote, urlencode

from tallystick.errors import InvalidRequest, RetryLater, SettingsError

Json = dict[str, Any]
Reprocess = Literal["none", "failed", "completed"]
RUN_ENDED = frozenset({"success", "failed"})
TASK_ENDED = frozenset({"success", "failed", "upstream_failed", "skipped", "removed"})
_TIMEOUT_S = 120.0  # on a busy machine, a response of Airflow can take more than 30 s
_POLL_S = 0.25
_PAGE = 100


class AirflowApi:
    """A client for one user of one Airflow. Its methods return Airflow's own JSON, unchanged.

    They raise SettingsError if Airflow does not respond or refuses the login, InvalidRequest with Airflow's message if it
    refuses a call, RetryLater if it is temporarily unavailable (429, 502, 503, 504).
    """

    def __init__(self, base_url: str, user: str, password: str) -> None:
        self.base_url = base_url.rstrip("/")
        self._login = {"username": user, "password": password}
        self._token: str | None = None
        # Ignore the proxies of the environment: requests go to the loopback interface.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    # Health and DAGs

    def health(self) -> Json:
        """Return the state of Airflow's components with the times of their last heartbeats. It needs no login."""
        return self._send("GET", "/api/v2/monitor/health", None, token=None)

    def dags(self) -> list[Json]:
        """Return the DAGs that the dag processor has seen."""
        return self._pages("/dags", "dags")

    def import_errors(self) -> list[Json]:
        """Return the DAG files that could not be imported, with their stack traces."""
        return self._pages("/importErrors", "import_errors")

    def set_paused(self, dag_id: str, *, paused: bool) -> None:
        """Pause or unpause a DAG. Safe to repeat: the state is set, not toggled."""
        self.call("PATCH", f"{_dag(dag_id)}?update_mask=is_paused", {"is_paused": paused})

    # Runs

    def runs(self, dag_id: str, **filters: str) -> list[Json]:
        """Return the runs of a DAG, oldest first. `filters` are Airflow's query parameters."""
        return self._pages(f"{_dag(dag_id)}/dagRuns", "dag_runs", order_by="run_after", **filters)

    def latest_run(self, dag_id: str) -> Json | None:
        """Return the latest run of a DAG (by `run_after`), or None if it has none."""
        query = urlencode({"limit": 1, "order_by": "-run_after"})
        found = self.call("GET", f"{_dag(dag_id)}/dagRuns?{query}")["dag_runs"]
        return found[0] if found else None

    def run(self, dag_id: str, run_id: str) -> Json:
        """Return one run."""
        return self.call("GET", _run(dag_id, run_id))

    def trigger(
        self,
        dag_id: str,
        *,
        conf: Mapping[str, object] | None = None,
        logical_date: datetime | None = None,
        run_id: str | None = None,
    ) -> Json:
        """Start a run as a script does, by default without a logical date. Each call starts another run."""
        body: Json = {
            "logical_date": logical_date and logical_date.isoformat(),
            "conf": dict(conf or {}),
        }
        if run_id is not None:
            body["dag_run_id"] = run_id
        return self.call("POST", f"{_dag(dag_id)}/dagRuns", body)

    def press_trigger(self, dag_id: str, form: Mapping[str, object]) -> Json:
        """Start a run with the body that the Trigger form sends. `form` has all parameters of the form.

        Each call starts another run.
        """
        body = trigger_body(form, at=datetime.now(UTC))
        return self.call("POST", f"{_dag(dag_id)}/dagRuns", body)

    def clear_run(self, dag_id: str, run_id: str, *, only_failed: bool = False) -> Json:
        """Clear all tasks of a run, as its Clear button does. Each call increments the run's clear number."""
        return self.call(
            "POST", f"{_run(dag_id, run_id)}/clear", {"dry_run": False, "only_failed": only_failed}
        )

    def mark_run(
        self, dag_id: str, run_id: str, state: Literal["success", "failed", "queued"]
    ) -> Json:
        """Mark a run, as its menu does. Safe to repeat: the same state is set again."""
        return self.call("PATCH", f"{_run(dag_id, run_id)}?update_mask=state", {"state": state})

    # Task instances

    def tasks(self, dag_id: str, run_id: str) -> list[Json]:
        """Return the current task instances of a run, without their earlier tries."""
        return self._pages(f"{_run(dag_id, run_id)}/taskInstances", "task_instances")

    def task(self, dag_id: str, run_id: str, task_id: str) -> Json:
        """Return the current task instance of a task."""
        return self.call("GET", _task(dag_id, run_id, task_id))

    def tries(self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1) -> list[Json]:
        """Return every try of a task, in order."""
        index = "" if map_index < 0 else f"/{map_index}"
        answer = self.call("GET", f"{_task(dag_id, run_id, task_id)}{index}/tries")
        return sorted(answer["task_instances"], key=lambda attempt: int(attempt["try_number"]))

    def clear_tasks(
        self,
        dag_id: str,
        run_id: str,
        task_ids: Sequence[str],
        *,
        downstream: bool = True,
        prevent_running: bool = True,
    ) -> list[Json]:
        """Clear tasks of a run with the body that the Clear button sends. Each call increments the clear number.

        If `prevent_running` is True, a running task is refused (InvalidRequest), else it is stopped and starts again.
        """
        body = clear_body(run_id, task_ids, downstream=downstream, prevent_running=prevent_running)
        answer = self.call("POST", f"{_dag(dag_id)}/clearTaskInstances", body)
        return list(answer["task_instances"])

    def mark_task(
        self, dag_id: str, run_id: str, task_id: str, state: Literal["success", "failed"]
    ) -> Json:
        """Mark a task, as its menu does; a running task is stopped. Safe to repeat: the same state is set again."""
        return self.call("PATCH", _task(dag_id, run_id, task_id), {"new_state": state})

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> object:
        """Return a value that a task pushed to XCom."""
        address = (
            f"{_task(dag_id, run_id, task_id)}/xcomEntries/{quote(key, safe='')}?deserialize=true"
        )
        return self.call("GET", address)["value"]

    def log_events(
        self, dag_id: str, run_id: str, task_id: str, try_number: int, *, map_index: int = -1
    ) -> list[Json | str]:
        """Return the events of one try's log: objects with `event`, `level` and more, or plain lines."""
        query = urlencode({"full_content": "true", "map_index": map_index})
        answer = self.call("GET", f"{_task(dag_id, run_id, task_id)}/logs/{try_number}?{query}")
        content: str | list[Json | str] = answer["content"]
        return [*content.splitlines()] if isinstance(content, str) else content

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> str:
        """Return the log of one try as text, one event per line."""
        return "\n".join(
            str(line.get("event", line)) if isinstance(line, dict) else str(line)
            for line in self.log_events(dag_id, run_id, task_id, try_number)
        )

    # Backfills

    def create_backfill(
        self,
        dag_id: str,
        start: datetime,
        end: datetime,
        *,
        backwards: bool = False,
        max_active_runs: int = 10,
        reprocess: Reprocess = "none",
        conf: Mapping[str, object] | None = None,
    ) -> Json:
        """Create a backfill. Both dates are logical dates and are included. Airflow allows one per DAG at a time."""
        body = backfill_body(
            dag_id,
            start,
            end,
            backwards=backwards,
            max_active_runs=max_active_runs,
            reprocess=reprocess,
            conf=conf,
        )
        return self.call("POST", "/backfills", body)

    def backfill(self, backfill_id: int) -> Json:
        """Return one backfill. Its `completed_at` is None until Airflow has closed it."""
        return self.call("GET", f"/backfills/{backfill_id}")

    # Waiting

    def wait_for_run(
        self, dag_id: str, run_id: str, *, deadline_s: float, states: Collection[str] = RUN_ENDED
    ) -> Json:
        """Poll a run until it is in one of the states. Raises SettingsError with the tasks' states after `deadline_s`."""
        return self._wait(
            lambda: self.run(dag_id, run_id),
            states,
            deadline_s=deadline_s,
            what=f"{dag_id} {run_id}",
            detail=lambda: ", ".join(
                f"{task['task_id']}={task['state']}" for task in self.tasks(dag_id, run_id)
            ),
        )

    def wait_for_task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        *,
        deadline_s: float,
        states: Collection[str] = TASK_ENDED,
    ) -> Json:
        """Poll a task instance until it is in one of the states. Raises SettingsError after `deadline_s`."""
        return self._wait(
            lambda: self.task(dag_id, run_id, task_id),
            states,
            deadline_s=deadline_s,
            what=f"{dag_id} {run_id} {task_id}",
            detail=lambda: f"run is {self.run(dag_id, run_id)['state']}",
        )

    def wait_for_backfill(self, backfill_id: int, *, deadline_s: float) -> Json:
        """Poll a backfill until Airflow has closed it. Raises SettingsError after `deadline_s`."""

        def read() -> Json:
            backfill = self.backfill(backfill_id)
            return backfill | {"state": "completed" if backfill["completed_at"] else "open"}

        return self._wait(
            read,
            ("completed",),
            deadline_s=deadline_s,
            what=f"backfill {backfill_id}",
            detail=lambda: "open",
        )

    def wait_for_dag(self, dag_id: str, *, deadline_s: float) -> Json:
        """Poll until the dag processor has seen a DAG. Raises SettingsError with the import errors after `deadline_s`."""
        found: list[Json] = []

        def read() -> Json:
            found[:] = [dag for dag in self.dags() if dag["dag_id"] == dag_id]
            return {"state": "parsed" if found else "not parsed"}

        self._wait(
            read,
            ("parsed",),
            deadline_s=deadline_s,
            what=f"DAG {dag_id}",
            detail=lambda: (
                "\n".join(str(error["stack_trace"]) for error in self.import_errors())
                or "no import errors"
            ),
        )
        return found[0]

    def _wait(
        self,
        read: Callable[[], Json],
        states: Collection[str],
        *,
        deadline_s: float,
        what: str,
        detail: Callable[[], str],
    ) -> Json:
        deadline = time.monotonic() + deadline_s
        while True:
            value = read()
            if value["state"] in states:
                return value
            if time.monotonic() >= deadline:
                raise SettingsError(
                    f"{what}: expected {' or '.join(sorted(states))} within {deadline_s:g} s, found {value['state']} "
                    f"({detail()}).",
                    hint="read the task's log in Airflow.",
                )
            time.sleep(_POLL_S)

    # Requests

    def call(self, method: str, path: str, body: object = None) -> Json:
        """Send one request below /api/v2. If there is no token or it has expired, log in first."""
        for last in (False, True):
            if self._token is None:
                self._token = str(
                    self._send("POST", "/auth/token", self._login, token=None)["access_token"]
                )
            try:
                return self._send(method, "/api/v2" + path, body, token=self._token)
            except _LoginExpiredError:
                if last:
                    raise
                self._token = None
        raise AssertionError  # the loop returns or raises

    def _pages(self, path: str, key: str, **query: str) -> list[Json]:
        found: list[Json] = []
        while True:
            page = self.call(
                "GET", f"{path}?{urlencode({'limit': _PAGE, 'offset': len(found), **query})}"
            )
            found.extend(page[key])
            if not page[key] or len(found) >= page["total_entries"]:
                return found

    def _send(self, method: str, path: str, body: object, *, token: str | None) -> Json:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, content, headers, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise _refusal(method, path, error) from error
        except (OSError, urllib.error.URLError) as error:
            raise SettingsError(
                f"Airflow does not answer at {self.base_url}: {error}.",
                hint="check `tally local status`.",
            ) from error
        parsed: Json = json.loads(text) if text else {}
        return parsed


# The request bodies of the pages of Airflow 3.3.2. tests/airflow/user_actions/test_buttons.py compares them in a browser.


def trigger_body(form: Mapping[str, object], *, at: datetime) -> Json:
    """Return the body that the Trigger form sends: all of its parameters, and the current time as the logical date."""
    return {
        "conf": dict(form),
        "data_interval_end": None,
        "data_interval_start": None,
        "logical_date": _page_date(at.replace(microsecond=0)),
        "partition_key": None,
    }


def clear_body(
    run_id: str, task_ids: Sequence[str], *, downstream: bool = True, prevent_running: bool = True
) -> Json:
    """Return the body that the Clear dialog of a task sends."""
    body: Json = {
        "dry_run": False,
        "dag_run_id": run_id,
        "task_ids": [[task_id, -1] for task_id in task_ids],
        "include_downstream": downstream,
        "include_future": False,
        "include_past": False,
        "include_upstream": False,
        "only_failed": False,
        "run_on_latest_version": False,
    }
    return {**body, "prevent_running_task": True} if prevent_running else body


def backfill_body(
    dag_id: str,
    start: datetime,
    end: datetime,
    *,
    backwards: bool = False,
    max_active_runs: int = 1,
    reprocess: Reprocess = "none",
    conf: Mapping[str, object] | None = None,
) -> Json:
    """Return the body that the Backfill form sends.

    `conf`: its parameters, which it sends only if *Override parameters on existing runs* is ticked.
    """
    return {
        "dag_id": dag_id,
        "dag_run_conf": None if conf is None else dict(conf),
        "from_date": _page_date(start),
        "to_date": _page_date(end),
        "run_backwards": backwards,
        "run_on_latest_version": True,
        "max_active_runs": max_active_runs,
        "reprocess_behavior": reprocess,
    }


def _page_date(at: datetime) -> str:
    """Return a date in JavaScript's format."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _LoginExpiredError(SettingsError):
    """An error that means that Airflow does not accept the token or the password."""


def _refusal(
    method: str, path: str, error: urllib.error.HTTPError
) -> SettingsError | InvalidRequest | RetryLater:
    message = f"Airflow answered {error.code} to {method} {path}: {error.read().decode(errors='replace')[:2000]}."
    if error.code in {401, 403}:
        return _LoginExpiredError(
            message,
            hint="log in as the user of `tally local status`; the password is in stack.json of the state folder.",
        )
    if error.code in {429, 502, 503, 504}:
        return RetryLater(message, hint="try again.")
    return InvalidRequest(message, hint="correct what the answer names.")


def _dag(dag_id: str) -> str:
    return f"/dags/{quote(dag_id, safe='')}"


def _run(dag_id: str, run_id: str) -> str:
    return f"{_dag(dag_id)}/dagRuns/{quote(run_id, safe='')}"  # a run id contains ":" and "+"


def _task(dag_id: str, run_id: str, task_id: str) -> str:
    return f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id, safe='')}"
