"""Maps the result of a command to its exit code, and writes errors: without a stack trace if the user can act on them."""

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
COUNTED_S = 2.0
_AS_JSON: ContextVar[bool] = ContextVar("as_json", default=False)

OK, COUNTER_EXAMPLE, USAGE = 0, 1, 2
DEFECT = 70  # EX_SOFTWARE of sysexits.h: 1 must only mean that a check found a problem
RETRY_LATER, SUPERSEDED, ACTION_REQUIRED = 75, 76, 77  # the exit codes of the Spark entry, too
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 plus the number of the signal


class Requests:
    """The number of requests to the store that this process has sent."""

    sent = 0


REQUESTS = Requests()


def exit_code(error: TallystickError) -> int:
    """Return the exit code of an error's group, which determines the caller's next step."""
    groups = (
        (RetryLater, RETRY_LATER),
        (Superseded, SUPERSEDED),
        (ActionRequired, ACTION_REQUIRED),
    )
    return next((code for group, code in groups if isinstance(error, group)), ACTION_REQUIRED)


def exit_on_error(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that a TallystickError is written to standard error and becomes its exit code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json = _is_json(kwargs)
        before = _AS_JSON.set(as_json)
        try:
            command(*args, **kwargs)
        except TallystickError as error:
            print_error(error, as_json=as_json)
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            # The reader of standard output closed the pipe: it needs no more.
            _silence_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        finally:
            _AS_JSON.reset(before)

    return wrapped


def _is_json(options: Mapping[str, object]) -> bool:
    """Return True if a command's options request JSON: `--json`, or `tally sql --format json`."""
    return bool(options.get("as_json")) or options.get("form") == "json"


def note(text: str) -> None:
    """Write a note to standard error, unless the answer is JSON: then standard error is only for errors."""
    if not _AS_JSON.get():
        typer.echo(text, err=True)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show a spinner until the answer is there, and after COUNTED_S seconds how long it takes and the number of requests.

    Nothing is shown with JSON, or if standard error is no terminal.
    """
    if not on_terminal():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.text import Text

    class Counted(ProgressColumn):
        def render(self, task: Task) -> Text:
            elapsed_s = task.elapsed or 0.0
            if elapsed_s < COUNTED_S:
                return Text("")
            return Text(f"{elapsed_s:.0f} s, {REQUESTS.sent - sent_before:,} requests to the store")

    sent_before = REQUESTS.sent
    columns = (SpinnerColumn(), TextColumn("{task.description}"), Counted())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows (what, done, total) as bars; None with JSON, or if standard error is no terminal."""
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
    """Return True if bars may be shown: standard error is a terminal, and no JSON is requested."""
    return sys.stderr.isatty() and not _AS_JSON.get()


def print_error(error: TallystickError, *, as_json: bool) -> None:
    """Write an error to standard error: what happened, and what to do next."""
    if as_json:
        form = {"kind": error.kind, "message": error.message, "hint": error.hint}
        typer.echo(json.dumps({"error": form}), err=True)
        return
    from tallystick.cli import colour
    from tallystick.cli.text import paragraph

    # The first line of a message is a paragraph. What follows is laid out already: a statement with a mark below it.
    first, _, rest = error.message.partition("\n")
    message = colour.first_word(paragraph(f"{error.kind}: {first}"), "bad", stream=sys.stderr)
    for part in (message, *filter(None, [rest]), paragraph(f"Next: {error.hint}")):
        typer.echo(part, err=True, color=colour.enabled(sys.stderr))


def out(text: str) -> None:
    """Write a text or a JSON document to standard output, and flush it.

    It does not use `typer.echo`, which removes escape sequences from what goes into a pipe: values of rows may have some.
    """
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def out_json(form: Any) -> None:
    """Write one JSON document to standard output."""
    out(json.dumps(form, indent=2, ensure_ascii=False))


def _silence_stdout() -> None:
    # When the interpreter flushes standard output at its end, it would report the closed pipe once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
