"""The registration of the pages with Airflow: where the app is mounted, and the tabs and the menu entry that open it."""

from __future__ import annotations

import threading
from typing import Any

PREFIX = "/tallystick"


class PagesApp:
    """The app of the pages, built at its first request.

    Airflow imports plugins in each of its processes, but only the API server needs the app and what it imports.
    """

    def __init__(self) -> None:
        self._app: Any = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request (ASGI)."""
        if self._app is None:
            with self._lock:
                if self._app is None:
                    from tallystick.airflow.pages.app import build

                    self._app = build()
        await self._app(scope, receive, send)


FASTAPI_APPS = [{"app": PagesApp(), "url_prefix": PREFIX, "name": "tallystick"}]
# The addresses are relative to Airflow's own, which may have a path.
EXTERNAL_VIEWS = [
    {
        "name": "Lakes",
        "href": "tallystick/",
        "url_route": "lakes",
        "destination": "nav",
        "category": "browse",
    },
    {
        "name": "Lake",
        "href": "tallystick/dags/{DAG_ID}/",
        "url_route": "lake",
        "destination": "dag",
    },
    {
        "name": "Lake",
        "href": "tallystick/dags/{DAG_ID}/?run_id={RUN_ID}",
        "url_route": "lake_run",
        "destination": "dag_run",
    },
]
