"""A publisher of five calls that kills itself at a step."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from support.folder_store import FolderStore
from tallystick.connections.http import HttpSettings
from tallystick.connections.smtp import SmtpSettings
from tallystick.outputs.calls import EmailOutput, HttpOutput
from tallystick.outputs.calls.email import Mailbox
from tallystick.outputs.calls.http import HttpReceiver
from tallystick.store import Store
from unit.outputs.publications import SCOPE, publication

ROWS = [{"k": f"k{n}", "to": f"k{n}@example.org", "n": n} for n in range(5)]
PER_BATCH = 2


def http(
    url: str, store: Store, *, timeout_s: int = 5, patience_s: float = 5.0, **how: Any
) -> HttpReceiver:
    """Return the output for a receiver; one call after the other, unless `how` sets `concurrency`."""
    declared = HttpOutput(**{"name": "feed", "table": "events", "url": url, "concurrency": 1} | how)
    settings = HttpSettings(timeout_s=timeout_s)
    return HttpReceiver(declared, lambda: settings, store, batch=PER_BATCH, patience_s=patience_s)


def mail(
    port: int, store: Store, *, doubt_s: float | None = 0.0, timeout_s: int = 5, **how: Any
) -> Mailbox:
    """Return the output for a mail server."""
    declared = EmailOutput(
        **{
            "name": "feed",
            "table": "events",
            "to": "to",
            "subject": "News of {k}",
            "body": "It is {n}.\n",
            "sender": "shop@example.com",
            "key": ["k"],
        }
        | how
    )
    settings = SmtpSettings(host="127.0.0.1", port=port, security="none", timeout_s=timeout_s)
    return Mailbox(declared, lambda: settings, store, doubt_s=doubt_s)


def dying(step: str, nth: int) -> Any:
    """Return a callback that kills this process with SIGKILL at the nth call of a step."""
    left = nth

    def stepped(what: str, key: str = "") -> None:
        nonlocal left
        left -= what == step
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    return stepped


def report_steps(output: Any, name: str, stepped: Any) -> None:
    """Wrap a method of the output so that it calls `stepped` before and after each call."""
    real = getattr(output, name)

    def wrapped(*of: Any, **more: Any) -> Any:
        stepped("before the call")
        result = real(*of, **more)
        stepped("after the call")
        return result

    setattr(output, name, wrapped)


def main(kind: str, address: str, folder: str, step: str, nth: int) -> None:
    """Publish, and die."""
    stepped = dying(step, nth)
    store = FolderStore(Path(folder), step=stepped)
    output: Any
    if kind == "mail":
        output = mail(int(address), store)
        report_steps(output, "_deliver", stepped)
    else:
        output = http(
            address, store, **({"key": ["k"], "replaced": "once"} if kind == "by key" else {})
        )
        report_steps(output, "_send", stepped)
    output.begin(SCOPE)
    output.publish(publication(ROWS), resumed=False)
