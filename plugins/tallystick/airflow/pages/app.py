"""Builds the app of the pages: the routes, the page itself, and the form of errors."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tallystick.airflow.pages.page import router as page_router
from tallystick.airflow.pages.routes import router
from tallystick.errors import (
    InvalidPipeline,
    InvalidRequest,
    NothingPlanned,
    RetryLater,
    TallystickError,
)

log = logging.getLogger(__name__)

_HEADERS = {
    # The page needs nothing from any other host, and nothing else may show it in a frame.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def build() -> FastAPI:
    """Return the app. It has no documentation pages, because those would be readable without a login."""
    # Clients log each retry; the answer of the route names the server and the cause.
    for name in ("botocore", "boto3", "urllib3", "pyiceberg"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    app = FastAPI(title="tallystick", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(page_router)
    app.include_router(router, prefix="/api")
    app.add_exception_handler(TallystickError, _failed)

    @app.middleware("http")
    async def with_headers(request: Request, call_next):  # type: ignore[no-untyped-def]
        response: Response = await call_next(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return app


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """Return an error of tallystick as JSON: its kind, what happened and what to do next. None of them has secrets."""
    assert isinstance(error, TallystickError)
    if not isinstance(error, NothingPlanned):
        log.warning("%s: %s", request.url.path, error)
    body = {"kind": error.kind, "message": error.message, "hint": error.hint}
    return JSONResponse(body, status_code=_status_code(error))


def _status_code(error: TallystickError) -> int:
    if isinstance(error, NothingPlanned):
        return 404
    if isinstance(error, InvalidRequest | InvalidPipeline):
        return 400
    return 503 if isinstance(error, RetryLater) else 502
