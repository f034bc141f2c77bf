"""The use case `tally show`: reads one object of a lake and checks it against its format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.claim import Claim
from tallystick.format.compaction import Compaction
from tallystick.format.page import Page
from tallystick.format.plan import Plan
from tallystick.format.record import Record
from tallystick.format.report import Report
from tallystick.format.root import Root
from tallystick.lake import Lake

_PARSERS: Mapping[str, Callable[..., Any]] = {
    keys.PLANS_PREFIX: Plan.decode,
    keys.CLAIMS_PREFIX: Claim.decode,
    keys.ATTEMPTS_PREFIX: Report.decode,
    keys.COMMITS_PREFIX: Record.decode,
    keys.COMPACTIONS_PREFIX: Compaction.decode,
    keys.LEDGER_PREFIX: Page.decode,
    keys.ROOT: Root.decode,
}


def split_address(what: str) -> tuple[str | None, str]:
    """Split an address as in logs and links into (lake, key); if it is only a key, the lake is None.

    Raises InvalidRequest if it is an address of no object that tallystick writes.
    """
    if "://" not in what:
        return None, what
    scheme, _, rest = what.partition("://")
    for start in _PARSERS:
        lake, found, tail = rest.rpartition(f"/{start}")
        if found and lake:
            return f"{scheme}://{lake}", start + tail
    raise InvalidRequest(
        f"{what!r} is not the address of an object that tallystick writes.",
        hint=f"name an address or a key that begins with one of {', '.join(_PARSERS)}.",
    )


def read_object(lake: Lake, key: str) -> Any:
    """Return the object as JSON values, after its format was checked.

    Raises InvalidRequest if there is no such object or if the key is not tallystick's, Corrupt if the object does not
    match its format, and what the store raises.
    """
    parse = next((p for start, p in _PARSERS.items() if key.startswith(start)), None)
    if parse is None:
        raise InvalidRequest(
            f"{key!r} is not the key of an object that can be shown.",
            hint=f"name a key that begins with one of {', '.join(_PARSERS)}.",
        )
    found = lake.store.get(key)
    if found is None:
        lake.load_existing()  # raises if there is no lake: then the key is not what is wrong
        raise InvalidRequest(
            f"{lake.where(key)} does not exist.",
            hint="check the key; `tally status --json` and `tally log --json` name plans, reports and records.",
        )
    parse(found.body, where=lake.where(key))
    return json.loads(found.body)
