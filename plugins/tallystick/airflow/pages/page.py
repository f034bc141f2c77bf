"""The page itself: one HTML document for all addresses, and its style sheet, scripts and icon.

They contain nothing of any lake, and still only users who may read a DAG of a lake get them.
"""

from __future__ import annotations

import hashlib
from html import escape
from pathlib import Path

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse

from tallystick.airflow.pages.access import ReadableLakes, ReadDag, lakes_of_dags
from tallystick.runtime.version import VERSION

STATIC = Path(__file__).with_name("static")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_NO_LAKE = """\
<!doctype html>
<html lang="en">
  <head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>Lake</title></head>
  <body><p>This DAG has no lake: none of its tasks updates an Asset of tallystick.</p></body>
</html>
"""
FILES = {
    path.relative_to(STATIC).as_posix(): path
    for path in sorted(STATIC.rglob("*"))
    if path.suffix in _TYPES
}


def _digest() -> str:
    """Return the digest of all files, with which their addresses begin: an upgrade must not mix two versions."""
    found = hashlib.sha256()
    for name, path in FILES.items():
        found.update(f"{name}\n{path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


DIGEST = _digest()
router = APIRouter()


@router.get("/")
def lakes_page(request: Request, lakes: ReadableLakes) -> HTMLResponse:
    """Return the page with all lakes that the user may see."""
    return _document(request, dag="")


@router.get("/dags/{dag_id}/", dependencies=[ReadDag])
def lake_page(request: Request, dag_id: str, session: SessionDep) -> HTMLResponse:
    """Return the page of a DAG's lake; 404 without scripts if it has none: Airflow shows the tab on every DAG."""
    if dag_id not in lakes_of_dags(session, dag_id):
        return HTMLResponse(_NO_LAKE, status_code=404)
    return _document(request, dag=dag_id)


@router.get("/static/{digest}/{name:path}")
def static_file(digest: str, name: str, lakes: ReadableLakes) -> FileResponse:
    """Return a file of the page. Browsers keep it: another content has another address."""
    path = FILES.get(name) if digest == DIGEST else None
    if path is None:
        raise HTTPException(404, "no such file: load the page again")
    kept = {"Cache-Control": "private, max-age=31536000, immutable"}
    return FileResponse(path, media_type=_TYPES[path.suffix], headers=kept)


def _document(request: Request, *, dag: str) -> HTMLResponse:
    base = request.scope.get("root_path", "")
    text = (STATIC / "page.html").read_text(encoding="utf-8")
    static = f"{base}/static/{DIGEST}"
    for name, value in (("base", base), ("dag", dag), ("static", static), ("version", VERSION)):
        text = text.replace(f"{{{{{name}}}}}", escape(value, quote=True))
    return HTMLResponse(text)
