"""A catalog with the part of Iceberg's REST API that registrations use, including `overwrite`, and faults.

Iceberg's own catalogs refuse `overwrite` up to version 1.12, so its RESTCatalogServer could only show the first
registration of a table.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PREFIX = "wh1"


class RestCatalogServer:
    """The state of a catalog. `metadata` returns the metadata of a URI; `step` runs before and after each request."""

    def __init__(self, metadata: Callable[[str], bytes] = lambda _: b"{}") -> None:
        self.metadata = metadata
        self.namespaces = {"small"}
        self.pointers: dict[str, str] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.step: Callable[[str], None] = lambda _: None
        # What a request is answered with instead, by its name.
        self.answers: dict[str, tuple[int, str]] = {}
        self.overwrites = True
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON of the answer to a request."""
        parts = urlsplit(path)
        if parts.path == "/api/v1/config":
            (warehouse,) = parse_qs(parts.query).get("warehouse", [""])
            found = {"prefix": PREFIX, "namespace-separator": "%2E"} if warehouse == "main" else {}
            return 200, {"defaults": {}, "overrides": found}
        start = f"/api/v1/{PREFIX}/namespaces/"
        namespace, _, rest = unquote(parts.path.removeprefix(start)).partition("/")
        if not parts.path.startswith(start):
            return 404, _error("NoSuchWarehouseException", "no such warehouse")
        if namespace not in self.namespaces:
            return 404, _error("NoSuchNamespaceException", f"no namespace {namespace}")
        if method == "POST" and rest == "register":
            return self._register(body)
        if rest == "tables":
            names = [{"namespace": [namespace], "name": name} for name in self.pointers]
            return 200, {"identifiers": names}
        return self._loaded(rest.removeprefix("tables/"))

    def _loaded(self, table: str) -> tuple[int, dict[str, Any]]:
        uri = self.pointers.get(table)
        if uri is None:
            return 404, _error("NoSuchTableException", f"no table {table}")
        return 200, {"metadata-location": uri, "metadata": json.loads(self.metadata(uri))}

    def _register(self, body: Any) -> tuple[int, dict[str, Any]]:
        table = body["name"]
        if table in self.pointers and body.get("overwrite") is not True:
            return 409, _error("AlreadyExistsException", f"table {table} exists")
        if table in self.pointers and not self.overwrites:
            return 406, _error("UnsupportedOperationException", "overwrite is not supported")
        self.pointers[table] = body["metadata-location"]
        return self._loaded(table)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": 400}}


@contextmanager
def running(catalog: RestCatalogServer) -> Iterator[RestCatalogServer]:
    """Serve a catalog on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            name = "register " + body["name"] if method == "POST" else "GET " + self._last()
            catalog.asked.append(name)
            catalog.headers.append(dict(self.headers))
            try:
                catalog.step(f"before {name}")
                status, content = catalog.answers.get(name, (0, ""))
                if not status:
                    status, found = catalog.answer(method, self.path, body)
                    content = json.dumps(found)
                catalog.step(f"after {name}")
            except ConnectionError:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content.encode())))
            self.end_headers()
            self.wfile.write(content.encode())

        def _last(self) -> str:
            return urlsplit(self.path).path.rpartition("/")[2]

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    catalog.url = f"http://127.0.0.1:{server.server_address[1]}/api"
    try:
        yield catalog
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
