"""Builds the app of the catalog: the routes, the form of errors, and the checks before each request."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from tallystick.catalog.access import AccessGuard, shown_path
from tallystick.catalog.errors import (
    CatalogError,
    as_catalog_error,
    bad_request,
    no_such_route,
    read_only,
)
from tallystick.catalog.results import TableResults
from tallystick.catalog.routes import ReadCatalog, router
from tallystick.catalog.sessions import SEPARATOR, Lakes
from tallystick.catalog.tokens import TokenFile
from tallystick.catalog.versions import SelectionError
from tallystick.errors import TallystickError

log = logging.getLogger(__name__)

READING = ("GET", "HEAD")


def build(
    lakes: Lakes, *, tokens: TokenFile | None, settings: Mapping[str, Mapping[str, str]]
) -> AccessGuard:
    """Return the app. It has no documentation pages.

    `tokens`: None only if the server is bound to a loopback address. `settings`: what clients need to read the tables of
    each lake, by the lake's name.
    """
    app = FastAPI(
        title="tallystick catalog",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.catalog = ReadCatalog(lakes=lakes, results=TableResults(settings))
    app.include_router(router)
    app.add_exception_handler(CatalogError, _failed)
    app.add_exception_handler(SelectionError, _failed)
    app.add_exception_handler(TallystickError, _failed)
    app.add_exception_handler(
        Exception, _failed
    )  # it is raised again after that, and the guard logs it
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _no_route)
    return AccessGuard(app, tokens=tokens)


async def _failed(request: Request, error: Exception) -> Response:
    path = request.path_params
    namespace = path.get("namespace", "").replace(SEPARATOR, ".")
    known = as_catalog_error(error, namespace=namespace, table=path.get("table"))
    if known.status >= 500 and isinstance(error, TallystickError):
        log.warning("%s: %s", shown_path(request.scope), known.message)
    return _answer(known)


async def _not_understood(request: Request, error: Exception) -> Response:
    return _answer(bad_request("A parameter of the request is not allowed."))


async def _no_route(request: Request, error: Exception) -> Response:
    """Answer a request for which there is no route: one that would write is refused, regardless of its path."""
    return _answer(no_such_route(request.url.path) if request.method in READING else read_only())


def _answer(error: CatalogError) -> Response:
    return Response(
        error.body(),
        status_code=error.status,
        media_type="application/json",
        headers=error.headers(),
    )
