"""The answers about tables: the metadata file as it is in the lake, with the client's settings and a strong ETag."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from tallystick.catalog.cache import SizedCache
from tallystick.catalog.errors import CollectedError, bad_request
from tallystick.catalog.lakes import LakeVersion, ServedLake
from tallystick.catalog.versions import At
from tallystick.format.canonical import corrupt

BYTES_MAX = 64 << 20
OVERTAKEN_MAX = 5
AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")

Snapshots = Literal["all", "refs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The JSON of an answer, and the ETag of exactly these bytes."""

    body: bytes
    etag: str

    def is_known(self, if_none_match: str | None) -> bool:
        """Return True if the client already has this answer, by its header If-None-Match."""
        if if_none_match is None:
            return False
        tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
        return self.etag in tags or "*" in tags


def answer(form: Any) -> Answer:
    """Return the answer for a JSON form."""
    return tagged(json.dumps(form, separators=(",", ":")).encode())


def tagged(body: bytes) -> Answer:
    """Return the answer with these bytes."""
    return Answer(body=body, etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def client_settings(endpoint_url: str | None, region: str) -> Mapping[str, str]:
    """Return the settings with which a client reads the tables of a store; none of them is a secret.

    `endpoint_url`: None if the store is not S3. The endpoint is sent only if it is not that of AWS.
    """
    if endpoint_url is None:
        return {}
    found = {"s3.region": region, "client.region": region}
    if not (urlsplit(endpoint_url).hostname or "").endswith(AWS_HOSTS):
        found |= {"s3.endpoint": endpoint_url, "s3.path-style-access": "true"}
    return found


def parse_snapshots(text: str | None) -> Snapshots:
    """Return which snapshots a client requests; raises CatalogError."""
    match text:
        case None | "" | "all":
            return "all"
        case "refs":
            return "refs"
        case _:
            raise bad_request("snapshots: expected all or refs, found another value.")


class TableResults:
    """The answers about tables. They are kept by the key of the metadata, whose bytes never change."""

    def __init__(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Keep `settings`: what clients need to read the tables of each lake, by the lake's name."""
        self._settings = settings
        self._answers = SizedCache[Answer](size_max=BYTES_MAX, size=lambda one: len(one.body))

    def load(self, lake: ServedLake, at: At, table: str, snapshots: Snapshots) -> Answer:
        """Return the answer about a table at a version. Raises CatalogError and the errors of `ServedLake.at`."""
        for left in reversed(range(OVERTAKEN_MAX)):
            of = lake.at(at)
            try:
                return self._load(lake, of, table, snapshots)
            except CollectedError:
                # Commits and gc were faster than this request: the root that it read is an old one.
                if at != "latest" or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _load(self, lake: ServedLake, of: LakeVersion, table: str, snapshots: Snapshots) -> Answer:
        key = of.metadata_key(table)
        kept_as = (of.uri, key, snapshots)
        kept = self._answers.get(kept_as)
        if kept is not None and lake.is_current(key):
            return kept
        body = lake.metadata(of, table)
        if kept is not None:
            return kept
        location = f"{of.uri}/{key}"
        metadata = _parsed(body, location)
        if snapshots == "refs":
            body = json.dumps(_with_refs_only(metadata), separators=(",", ":")).encode()
        head = f'{{"metadata-location":{json.dumps(location)},"metadata":'.encode()
        tail = f',"config":{json.dumps(dict(self._settings[lake.name]))}}}'.encode()
        made = tagged(head + body + tail)
        self._answers.put(kept_as, made)
        return made


def _parsed(body: bytes, location: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise corrupt(location, "expected a JSON object")
    return found


def _with_refs_only(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with only the snapshots that a branch or a tag refers to."""
    wanted = {ref.get("snapshot-id") for ref in metadata.get("refs", {}).values()}
    wanted.add(metadata.get("current-snapshot-id"))
    found = [one for one in metadata.get("snapshots", ()) if one.get("snapshot-id") in wanted]
    return {**metadata, "snapshots": found}
