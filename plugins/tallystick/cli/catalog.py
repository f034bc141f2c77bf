"""`tally catalog`: serves lakes as a read-only Iceberg REST catalog, and makes tokens for it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallystick.catalog.access import is_loopback
from tallystick.catalog.lakes import ServedLake
from tallystick.catalog.results import client_settings
from tallystick.catalog.tokens import TokenFile, new_token, token_line
from tallystick.catalog.versions import SelectionError, check_lake_name
from tallystick.cli.errors import note, out, out_json
from tallystick.cli.lake_argument import LAKE_ENV, open_lake
from tallystick.cli.waiting import LIMIT_S
from tallystick.errors import InvalidRequest, NothingPlanned, SettingsError
from tallystick.store.open import open_store

ANSWER_MAX_S = 20.0
REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """The options of the command. `tls`: the files of the certificate and of its key."""

    host: str
    port: int
    tokens: Path | None
    tls: tuple[Path, Path] | None
    client_config: bool
    as_json: bool


def run(uris: Sequence[str], named: Sequence[str], options: CatalogOptions) -> None:
    """Serve the lakes until the process is interrupted or gets SIGTERM.

    Raises InvalidRequest if a name or an option is wrong, SettingsError if a package, a file or the address cannot be
    used, and the errors of the lakes: each is read once before the server starts.
    """
    lakes = lakes_by_name(uris, named)
    with _packages():
        from tallystick.catalog import app, server
    files = (
        None
        if options.tls is None
        else server.TlsFiles(certificate=options.tls[0], key=options.tls[1])
    )
    if files is not None:
        files.check()
    tokens = None if options.tokens is None else TokenFile(options.tokens)
    if tokens is None and not is_loopback(options.host):
        raise _needs_tokens(options.host)
    with server.bound(options.host, options.port) as listening:
        if tokens is None and not server.is_bound_to_loopback(listening):
            raise _needs_tokens(options.host)
        served = open_lakes(lakes)
        settings = {
            name: _settings(lake) if options.client_config else {} for name, lake in served.items()
        }
        running = server.server(app.build(served, tokens=tokens, settings=settings), tls=files)
        url = _url(options, listening.getsockname()[1])
        _announce(url, lakes, options)
        _log_to_stderr()
        running.run(sockets=[listening])


def print_new_token(uris: Sequence[str], named: Sequence[str], *, as_json: bool) -> None:
    """Print a new token, and its line for the file of `--tokens`. It is stored nowhere."""
    names = lakes_by_name(uris, named) if uris or named else {}
    token = new_token()
    line = token_line(token, names)
    if as_json:
        out_json({"token": token, "line": line})
        return
    note("The token, for the client; it is shown only once:")
    out(token)
    note("Its line, for the file of --tokens:")
    out(line)


def lakes_by_name(uris: Sequence[str], named: Sequence[str]) -> Mapping[str, str]:
    """Return the URIs of the lakes by their names: of `NAME=URI`, or the last part of the URI. Raises InvalidRequest."""
    default = os.environ.get(LAKE_ENV)
    if not uris and not named and default:
        uris = [default]
    pairs = [(uri.rstrip("/").rpartition("/")[2], uri) for uri in uris]
    for text in named:
        name, equals, uri = text.partition("=")
        if not equals:
            raise InvalidRequest(
                f"--name: expected NAME=URI, found {text!r}.",
                hint="write e.g. flights=s3://lake/flights.",
            )
        pairs.append((name, uri))
    if not pairs:
        raise SettingsError(
            f"no lake is named: neither an argument nor {LAKE_ENV} is set.",
            hint="name the URIs of the lakes, e.g. tally catalog s3://lake/flights s3://lake/orders.",
        )
    found: dict[str, str] = {}
    for name, uri in pairs:
        try:
            check_lake_name(name)
        except SelectionError as error:
            raise InvalidRequest(f"{uri}: {error}.", hint=f"use --name NAME={uri}.") from None
        if found.setdefault(name, uri) != uri:
            raise InvalidRequest(
                f"expected each name once, found {name} for {found[name]} and {uri}.",
                hint=f"use --name OTHER={uri}.",
            )
    return found


def open_lakes(lakes: Mapping[str, str]) -> Mapping[str, ServedLake]:
    """Open the lakes, and read the root of each; raises their errors, but not if nothing is planned in a lake yet."""
    answer_s = min(ANSWER_MAX_S, LIMIT_S.get())
    for name, uri in lakes.items():
        try:
            # The lake of a command names the store on standard error while it waits.
            open_lake(uri).load_existing()
        except NothingPlanned:
            note(
                f"Nothing has been planned in {name} ({uri}) yet: it appears when its first run has planned."
            )
    return {
        name: ServedLake(name, open_store(uri, reads_within_s=answer_s), answer_s=answer_s)
        for name, uri in lakes.items()
    }


def _settings(lake: ServedLake) -> Mapping[str, str]:
    endpoint_url = getattr(lake.store, "endpoint_url", None)
    if endpoint_url is None:
        return {}
    import boto3

    return client_settings(endpoint_url, boto3.session.Session().region_name or REGION)


def _needs_tokens(host: str) -> InvalidRequest:
    return InvalidRequest(
        f"--host {host}: expected a loopback address because there are no tokens, found another one.",
        hint="add --tokens FILE (`tally catalog --new-token` prints a line for it), or leave out --host.",
    )


def _url(options: CatalogOptions, port: int) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{'http' if options.tls is None else 'https'}://{host}:{port}"


def _announce(url: str, lakes: Mapping[str, str], options: CatalogOptions) -> None:
    if options.as_json:
        out_json({"url": url, "lakes": dict(lakes), "tokens": options.tokens is not None})
        return
    token = ', token="..."' if options.tokens is not None else ""
    login = "TOKEN '...'" if options.tokens is not None else "AUTHORIZATION_TYPE 'none'"
    name = min(lakes)
    out(f"Serving {', '.join(sorted(lakes))} at {url}")
    out(f'PyIceberg: RestCatalog("lakes", uri="{url}"{token}).load_table("{name}.TABLE")')
    out(f"DuckDB:    ATTACH '' AS lakes (TYPE iceberg, ENDPOINT '{url}', {login})")
    out(f"Spark:     spark.sql.catalog.lakes.type=rest, spark.sql.catalog.lakes.uri={url}")
    out(f"Trino:     iceberg.catalog.type=rest, iceberg.rest-catalog.uri={url}")
    if options.tokens is not None and options.tls is None:
        note("Without --tls, tokens are sent in clear: put a proxy with TLS in front of it.")


def _log_to_stderr() -> None:
    """Write a line for each request to standard error. Clients of S3 log each retry: the answer names the cause."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("tallystick.catalog").setLevel(logging.INFO)
    for name in ("botocore", "boto3", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def _packages() -> Iterator[None]:
    """Raise SettingsError if a package of the extra `catalog` is not installed."""
    try:
        yield
    except ImportError as error:
        raise SettingsError(
            f"tally catalog: expected the package of {error.name}, found none.",
            hint="install tallystick[catalog] where `tally` runs.",
        ) from None
