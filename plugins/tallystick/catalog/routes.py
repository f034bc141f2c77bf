"""The routes of Iceberg's REST specification that only read. The checks of `access` come before each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from tallystick.catalog.errors import CatalogError, bad_request
from tallystick.catalog.lakes import LakeVersion, ServedLake
from tallystick.catalog.results import Answer, TableResults, answer, parse_snapshots
from tallystick.catalog.sessions import Lakes, begin, existing, lake_at, visible
from tallystick.catalog.versions import At

REPORT_BYTES_MAX = 1 << 20
PAGE_MAX = 1000
NEXT_PAGE = "next-page-token"

_NAMESPACES = "/v1/{prefix}/namespaces"
_NAMESPACE = f"{_NAMESPACES}/{{namespace}}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"
_METRICS = f"{_TABLE}/metrics"
ENDPOINTS = (
    f"GET {_NAMESPACES}",
    f"GET {_NAMESPACE}",
    f"HEAD {_NAMESPACE}",
    f"GET {_TABLES}",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"POST {_METRICS}",
)
"""What clients may call. They call nothing else, so no client looks for views."""

router = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A part of a listing: the names after `after`, at most `size`. `whole`: all names, as clients without pages need."""

    whole: bool
    after: str
    size: int

    def of(self, names: Sequence[str]) -> tuple[Sequence[str], dict[str, str | None]]:
        """Return the names of this page, and the field with the token of the next one: its last name, or None."""
        if self.whole:
            return names, {NEXT_PAGE: None}
        left = [name for name in names if name > self.after]
        page = left[: self.size]
        return page, {NEXT_PAGE: page[-1] if len(left) > len(page) else None}


@dataclass(slots=True, kw_only=True)
class ReadCatalog:
    """The lakes of a server by their names, the answers about their tables, and the number of metrics reports so far."""

    lakes: Lakes
    results: TableResults
    reports: int = field(default=0)


def _catalog(request: Request) -> ReadCatalog:
    found: ReadCatalog = request.app.state.catalog
    return found


def _lakes(request: Request) -> Lakes:
    """Return the lakes that the caller may see."""
    return visible(_catalog(request).lakes, request.state.grant)


def _lake_at(prefix: str, namespace: str, lakes: VisibleLakes) -> tuple[ServedLake, At]:
    return lake_at(lakes, prefix, namespace)


def _page(
    token: Annotated[str | None, Query(alias="pageToken")] = None,
    size: Annotated[str | None, Query(alias="pageSize")] = None,
) -> PageRequest:
    try:
        wanted = PAGE_MAX if size is None else int(size)
    except ValueError:
        wanted = 0
    if wanted < 1:
        raise bad_request("pageSize: expected a number from 1 on, found another value.")
    return PageRequest(whole=token is None, after=token or "", size=min(wanted, PAGE_MAX))


VisibleLakes = Annotated[Lakes, Depends(_lakes)]
PathLake = Annotated[tuple[ServedLake, At], Depends(_lake_at)]
PagePart = Annotated[PageRequest, Depends(_page)]
IfNoneMatch = Annotated[str | None, Header()]


@router.get("/v1/config")
def get_config(lakes: VisibleLakes, warehouse: str = "") -> Response:
    """Begin a session: its prefix names the version of each lake."""
    prefix = begin(lakes, warehouse)
    return _sent(
        answer({"defaults": {}, "overrides": {"prefix": prefix}, "endpoints": list(ENDPOINTS)}),
        None,
    )


@router.api_route(_NAMESPACES, methods=["GET", "HEAD"])
def get_namespaces(
    prefix: str,
    lakes: VisibleLakes,
    page: PagePart,
    parent: str = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the lakes of the session. No lake has a namespace below it."""
    if parent:
        lake_at(lakes, prefix, parent)
        return _sent(answer({"namespaces": [], NEXT_PAGE: None}), if_none_match)
    names, form = page.of(existing(lakes, prefix))
    return _sent(answer({"namespaces": [[name] for name in names], **form}), if_none_match)


@router.get(_NAMESPACE)
def get_namespace(found: PathLake, if_none_match: IfNoneMatch = None) -> Response:
    """Return a lake with its URI and the version that the session reads."""
    of = _version(found)
    properties = {"location": of.uri, "tallystick.version": str(of.version)}
    return _sent(answer({"namespace": [of.lake], "properties": properties}), if_none_match)


@router.head(_NAMESPACE)
def has_namespace(found: PathLake) -> Response:
    """Answer 204 if the lake exists at the session's version."""
    _version(found)
    return Response(status_code=204)


@router.get(_TABLES)
def get_tables(found: PathLake, page: PagePart, if_none_match: IfNoneMatch = None) -> Response:
    """Return the tables of a lake to which something was committed."""
    of = _version(found)
    names, form = page.of(of.names)
    identifiers = [{"namespace": [of.lake], "name": name} for name in names]
    return _sent(answer({"identifiers": identifiers, **form}), if_none_match)


@router.get(_TABLE)
def get_table(
    request: Request,
    found: PathLake,
    table: str,
    snapshots: str | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the metadata of a table at the session's version."""
    return _sent(_loaded(request, found, table, snapshots), if_none_match)


@router.head(_TABLE)
def has_table(request: Request, found: PathLake, table: str) -> Response:
    """Answer 204 if the table exists at the session's version and can be read."""
    _loaded(request, found, table, None)
    return Response(status_code=204)


@router.post(_METRICS)
async def post_metrics(request: Request, found: PathLake) -> Response:
    """Count a client's report and drop it. Safe to repeat: the count is only for the log, and nothing is stored."""
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > REPORT_BYTES_MAX:
            raise CatalogError(
                413, "BadRequestException", f"Expected at most {REPORT_BYTES_MAX} bytes."
            )
    _catalog(request).reports += 1
    return Response(status_code=204)


def _version(found: tuple[ServedLake, At]) -> LakeVersion:
    lake, at = found
    return lake.at(at)


def _loaded(
    request: Request, found: tuple[ServedLake, At], table: str, snapshots: str | None
) -> Answer:
    lake, at = found
    return _catalog(request).results.load(lake, at, table, parse_snapshots(snapshots))


def _sent(found: Answer, if_none_match: str | None) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": "private, no-cache"}
    if found.is_known(if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type="application/json", headers=headers)
