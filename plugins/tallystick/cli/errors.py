"""How a command ends: its exit code, and what is told of an error. No stack trace for what a user can act on."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec

import typer

from tallystick.errors import ActionRequired, RetryLater, Superseded, TallystickError

P = ParamSpec("P")
_AS_JSON: ContextVar[bool] = ContextVar("as_json", default=False)

OK, COUNTER_EXAMPLE, USAGE = 0, 1, 2
DEFECT = 70  # EX_SOFTWARE of sysexits.h: 1 must only ever mean that verify found something
RETRY_LATER, SUPERSEDED, ACTION_REQUIRED = 75, 76, 77  # as the Spark entry ends
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 and the number of the signal


def exit_code(error: TallystickError) -> int:
    """Return the code of an error's group: what the caller does next."""
    groups = (
        (RetryLater, RETRY_LATER),
        (Superseded, SUPERSEDED),
        (ActionRequired, ACTION_REQUIRED),
    )
    return next((code for group, code in groups if isinstance(error, group)), ACTION_REQUIRED)


def told(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command end as documented: a TallystickError is told and becomes its exit code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json = _wants_json(kwargs)
        before = _AS_JSON.set(as_json)
        try:
            command(*args, **kwargs)
        except TallystickError as error:
            tell(error, as_json=as_json)
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            # Whoever read us has seen enough.
            _silence_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        finally:
            _AS_JSON.reset(before)

    return wrapped


def _wants_json(options: Mapping[str, object]) -> bool:
    """Whether a command's options ask for JSON: `--json`, or `tally sql --format json`."""
    return bool(options.get("as_json")) or options.get("form") == "json"


def note(text: str) -> None:
    """Say something beside the answer on standard error; with JSON that is for errors alone."""
    if not _AS_JSON.get():
        typer.echo(text, err=True)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show on a terminal that something goes on, until the answer is there; nothing with JSON or in a file."""
    if not on_terminal():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """A function that shows (what, done, total) as bars on a terminal; None with JSON or in a file."""
    if not on_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as progress:
        shown: dict[str, TaskID] = {}

        def watch(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown[what] = progress.add_task(what)
            progress.update(shown[what], completed=done, total=total or None)

        yield watch


def on_terminal() -> bool:
    """Whether somebody watches standard error, where a bar may move: a terminal, and no JSON is asked for."""
    return sys.stderr.isatty() and not _AS_JSON.get()


def tell(error: TallystickError, *, as_json: bool) -> None:
    """Write an error to standard error: what happened, and what to do next."""
    if as_json:
        form = {"kind": error.kind, "message": error.message, "hint": error.hint}
        typer.echo(json.dumps({"error": form}), err=True)
        return
    from tallystick.cli.text import paragraph

    typer.echo(paragraph(f"{error.kind}: {error.message}"), err=True)
    typer.echo(paragraph(f"Next: {error.hint}"), err=True)


def out(text: str) -> None:
    """Write a text or a JSON document to standard output, now."""
    typer.echo(text)
    sys.stdout.flush()


def out_json(form: Any) -> None:
    """Write one JSON document to standard output."""
    out(json.dumps(form, indent=2, ensure_ascii=False))


def _silence_stdout() -> None:
    # The interpreter would complain about the closed pipe once more when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
