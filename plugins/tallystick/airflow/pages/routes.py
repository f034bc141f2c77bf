"""The routes with the data of lakes. All of them only read, and each needs the permission to read the DAG.

A page changes something only through Airflow's own REST API, with the user's own session.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse, Response

from tallystick.airflow.pages import answers, detail
from tallystick.airflow.pages.access import ReadableLakes, ReadDag, ReadLake
from tallystick.airflow.pages.lakes import OPEN_LAKES, read_ends
from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.operations.compare import compare
from tallystick.operations.dead_letters import WantedLetters, read_dead_letters
from tallystick.operations.interval_detail import read_interval
from tallystick.operations.lag import read_lag
from tallystick.operations.read_object import read_object
from tallystick.operations.status.timeline import read_timeline
from tallystick.runtime.version import VERSION

SAMPLES_ENV = "TALLYSTICK_PAGES_SAMPLES"
"""If it is 0, the pages show no records of dead letters, only their counts."""
COMMITS_MAX = 200
SAMPLES_MAX = 20

router = APIRouter()


@router.get("/lakes")
def get_lakes(lakes: ReadableLakes) -> list[dict[str, str]]:
    """Return the lakes of the DAGs that the user may read."""
    return [
        {"dag": one.dag, "pipeline": one.pipeline, "uri": one.uri}
        for _, one in sorted(lakes.items())
    ]


@router.get("/dags/{dag_id}/summary", dependencies=[ReadDag])
def get_summary(lake: ReadLake) -> dict[str, Any]:
    """Return the state of the DAG's lake in a few numbers."""
    return answers.summary(lake, OPEN_LAKES.get(lake.uri).status())


@router.get("/dags/{dag_id}/status", dependencies=[ReadDag])
def get_status(lake: ReadLake, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Return the whole state of the DAG's lake; 304 if it is the one that the browser has."""
    opened = OPEN_LAKES.get(lake.uri)
    # The age of grants is part of the state, in days: an hour is exact enough.
    hour = f"{datetime.now(UTC):%Y%m%d%H}"
    root = opened.lake().load_existing().etag.strip('"')
    tag = f'"{root}-{hour}-{VERSION}-{lake.dag}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and tag in if_none_match:
        return Response(status_code=304, headers=headers)
    if opened.answer is None or opened.answer[0] != tag:
        form = answers.status(lake, opened.status())
        opened.answer = (tag, json.dumps(form, separators=(",", ":")).encode())
    return Response(opened.answer[1], media_type="application/json", headers=headers)


@router.get("/dags/{dag_id}/lag", dependencies=[ReadDag])
def get_lag(lake: ReadLake) -> dict[str, Any]:
    """Return how far the ledger is behind its topics. If Kafka cannot be read, the answer has the error."""
    opened = OPEN_LAKES.get(lake.uri)
    found = read_lag(opened.lake(), opened.status(), connection=None, read_ends=read_ends)
    return answers.lag(found)


@router.get("/dags/{dag_id}/commits", dependencies=[ReadDag])
def get_commits(
    lake: ReadLake,
    limit: Annotated[int, Query(ge=1, le=COMMITS_MAX)] = 50,
    before: str | None = None,
) -> dict[str, Any]:
    """Return commits, newest first; `before`: the record from which on."""
    key = None if before is None else _record_key(before)
    return answers.timeline(read_timeline(OPEN_LAKES.get(lake.uri).lake(), limit=limit, before=key))


@router.get("/dags/{dag_id}/interval", dependencies=[ReadDag])
def get_interval(
    lake: ReadLake,
    start: Annotated[str, Query(alias="from")],
    end: Annotated[str, Query(alias="to")],
) -> dict[str, Any]:
    """Return all about one interval."""
    return detail.interval(read_interval(OPEN_LAKES.get(lake.uri).lake(), _interval(start, end)))


@router.get("/dags/{dag_id}/compare", dependencies=[ReadDag])
def get_comparison(lake: ReadLake, left: int, right: int) -> dict[str, Any]:
    """Return what the commits after version `left` up to version `right` changed."""
    return answers.comparison(compare(OPEN_LAKES.get(lake.uri).lake(), left=left, right=right))


@router.get("/dags/{dag_id}/dead-letters", dependencies=[ReadDag])
def get_dead_letters(
    lake: ReadLake,
    start: Annotated[str | None, Query(alias="from")] = None,
    end: Annotated[str | None, Query(alias="to")] = None,
    samples: Annotated[int, Query(ge=0, le=SAMPLES_MAX)] = 3,
) -> dict[str, Any]:
    """Return the dead letters of the lake, or of one span, by kind and field, with a few records of each."""
    within = None if start is None or end is None else _interval(start, end)
    shown = os.environ.get(SAMPLES_ENV) != "0"
    wanted = WantedLetters(within=within, samples=samples if shown else 0)
    opened = OPEN_LAKES.get(lake.uri)
    found = read_dead_letters(opened.lake(), wanted, cache=opened.cache)
    return answers.dead_letters(found, samples=shown)


@router.get("/dags/{dag_id}/object", dependencies=[ReadDag])
def get_object(lake: ReadLake, key: str) -> Response:
    """Return one object of the ledger as JSON: the root, a page, a plan, a claim, a report or a commit record."""
    found = read_object(OPEN_LAKES.get(lake.uri).lake(), key)
    return JSONResponse(found)


def _interval(start: str, end: str) -> Interval:
    try:
        return Interval(start=keys.parse_instant(start), end=keys.parse_instant(end))
    except ValueError as error:
        raise InvalidRequest(
            f"{error}.",
            hint="use from and to as in the answers of this app: 2013-01-01T00:00:00.000Z.",
        ) from error


def _record_key(key: str) -> keys.RecordKey:
    try:
        return keys.check_record(key)
    except ValueError as error:
        raise InvalidRequest(f"{error}.", hint="use the value `before` of an answer.") from error
