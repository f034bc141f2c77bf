"""Runs a user's DAG file or job file in this process, and returns what it declares, or its error with file and line."""

from __future__ import annotations

import importlib.util
import logging
import runpy
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tallystick.errors import InvalidPipeline, InvalidRequest, TallystickError

LINE_CHARS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The names of a file that was run, up to its error. `where`: its file, line and text, or empty.

    `airflow`: False if Airflow is not installed, so that the file was run without it.
    """

    names: Mapping[str, Any]
    error: TallystickError | None = None
    where: str = ""
    airflow: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """The transform of a job file, and how it is called: `arrow` by run, `dataframe` by run_dataframe; or the error."""

    transform: Callable[..., Any] | None = None
    kind: Literal["arrow", "dataframe"] = "arrow"
    error: TallystickError | None = None
    where: str = ""


class _StartedError(BaseException):
    """Ends a job file where it calls run or run_dataframe, which would not return either."""


def load_dag_file(file: Path) -> Loaded:
    """Run a DAG file, once more without Airflow if that is not installed.

    Raises InvalidRequest if it is no Python file. Its own errors are in the result.
    """
    if not file.is_file() or file.suffix != ".py":
        raise InvalidRequest(
            f"{file} is not a Python file.", hint="name the file that declares the pipeline."
        )
    if not airflow_is_installed():
        import tallystick.airflow

        with _replaced(tallystick.airflow, replay_dag=_no_dag, gc_dag=_no_dag):
            return _load(file, airflow=False)
    with _logging_restored():
        return _load(file, airflow=True)


@contextmanager
def _logging_restored() -> Iterator[None]:
    """Restore the handlers of the root logger: Airflow replaces them when it is imported, to write each INFO line."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def airflow_is_installed() -> bool:
    """Return True if this Python has Airflow, without importing it."""
    return importlib.util.find_spec("airflow") is not None


def _no_dag(*args: object, **kwargs: object) -> None:
    """Build nothing, in place of a DAG factory."""


def _load(file: Path, *, airflow: bool) -> Loaded:
    module = types.ModuleType(f"tally_dag_file_{file.stem}")
    module.__file__ = str(file)
    # Dataclasses and pickles of the file look up their module there.
    sys.modules[module.__name__] = module
    with as_a_program(file):
        try:
            exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), vars(module))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code, which may raise any error
            named, where = in_house_form(error, file)
            return Loaded(names=vars(module), error=named, where=where, airflow=airflow)
    return Loaded(names=vars(module), airflow=airflow)


def load_job(file: Path) -> LoadedJob:
    """Run a job file up to its call of `run` or `run_dataframe`, without Spark, and return its transform.

    Its errors are in the result.
    """
    import tallystick.spark

    found: list[LoadedJob] = []

    def arrow(transform: Callable[..., Any]) -> None:
        found.append(LoadedJob(transform=transform))
        raise _StartedError

    def dataframe(transform: Callable[..., Any]) -> None:
        found.append(LoadedJob(transform=transform, kind="dataframe"))
        raise _StartedError

    with (
        _replaced(tallystick.spark, run=arrow, run_dataframe=dataframe),
        _replaced(sys, argv=[str(file)]),
        as_a_program(file),
    ):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except _StartedError:
            return found[0]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code, which may raise any error
            named, where = in_house_form(error, file)
            return LoadedJob(error=named, where=where)
    return LoadedJob(
        error=InvalidPipeline(
            f"the job {shown_path(file)} calls neither run nor run_dataframe.",
            hint="end it with `if __name__ == '__main__':` and run(transform), of tallystick.spark.",
        )
    )


@contextmanager
def as_a_program(file: Path) -> Iterator[None]:
    """Put the file's folder on Python's path, and move what it prints to standard error, without warnings."""
    sys.path.insert(0, str(file.resolve().parent))
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(file.resolve().parent))


@contextmanager
def _replaced(module: types.ModuleType, **values: object) -> Iterator[None]:
    """Give names of a module other values, and restore or remove them at the end."""
    before = {name: vars(module)[name] for name in values if name in vars(module)}
    vars(module).update(values)
    try:
        yield
    finally:
        for name in values:
            vars(module).pop(name, None)
        vars(module).update(before)


def shown_path(file: Path) -> str:
    """Return a path as text, relative to the current folder if it is in it."""
    try:
        return str(file.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def in_house_form(error: BaseException, file: Path) -> tuple[TallystickError, str]:
    """Return an error of a user's file as a TallystickError, and the line of the file that raised it as text."""
    where = line_of(error, file)
    if isinstance(error, TallystickError):
        return error, where
    if isinstance(error, SyntaxError):
        return InvalidPipeline(f"{error.msg}.", hint="correct the line."), where
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, ModuleNotFoundError):
        hint = f"install {error.name} in the Python of this command, or correct the import."
    else:
        hint = (
            "correct the line. If it needs its own folder or variables, run the command with them."
        )
    return InvalidPipeline(f"{what}.", hint=hint), where


def line_of(error: BaseException, file: Path) -> str:
    """Return the last line of the file that an error passed, or the place of a SyntaxError: file, number, text."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return _place(shown_path(Path(error.filename or file)), error.lineno, error.text or "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) == file]
    if not own:
        return f"{shown_path(file)}: "
    return _place(shown_path(file), own[-1].lineno or 0, own[-1].line or "")


def _place(file: str, line: int, text: str) -> str:
    shown = text.strip()
    if len(shown) > LINE_CHARS_MAX:
        shown = f"{shown[:LINE_CHARS_MAX]}..."
    return f"{file}, line {line}: `{shown}`: " if shown else f"{file}, line {line}: "
