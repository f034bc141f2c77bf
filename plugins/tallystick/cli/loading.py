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

from tallystick.errors import InvalidPipeline, InvalidRequest, TallystickError, listed
from tallystick.pipeline import Pipeline

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DagPipeline:
    """A pipeline of a DAG file, with the id of its DAG and the folder that `Pipeline.job` is relative to."""

    pipeline: Pipeline
    dag_id: str
    job_root: str


class _StartedError(BaseException):
    """Ends a job file where it calls run or run_dataframe, which would not return either."""


def load_dag_file(file: Path) -> Loaded:
    """Run a DAG file, once more without Airflow if that is not installed.

    Raises InvalidRequest if it is no Python file. Its own errors are in the result.
    """
    _check_python_file(file)
    if not airflow_is_installed():
        import tallystick.airflow

        with _replaced(tallystick.airflow, replay_dag=_no_dag, gc_dag=_no_dag):
            return _load(file, airflow=False)
    with _logging_restored():
        return _load(file, airflow=True)


def load_pipeline(file: Path, name: str | None) -> DagPipeline:
    """Run a DAG file without building its DAGs, and return its only pipeline, or the one with this name.

    Airflow is imported only if the file imports it itself. Raises InvalidRequest if it is no Python file, or if the
    pipeline is not one of the file; raises the file's own error with its place.
    """
    found = load_pipelines(file)
    names = listed(one.pipeline.name for one in found)
    chosen = [one for one in found if name in (None, one.pipeline.name)]
    if not found:
        raise InvalidRequest(
            f"{shown_path(file)} declares no pipeline.",
            hint="assign Pipeline(...) to a name at the top level of the file.",
        )
    if not chosen:
        raise InvalidRequest(
            f"{shown_path(file)}: expected a pipeline {name!r}, found {names}.",
            hint="name one of these with --pipeline.",
        )
    if len(chosen) > 1:
        raise InvalidRequest(
            f"{shown_path(file)}: expected one pipeline, found {names}.",
            hint="name one of these with --pipeline.",
        )
    return chosen[0]


def load_pipelines(file: Path) -> tuple[DagPipeline, ...]:
    """Run a DAG file without building its DAGs, and return its pipelines; see `load_pipeline`."""
    import tallystick.airflow

    _check_python_file(file)
    declared: list[DagPipeline] = []

    def recorded(
        pipeline: Pipeline,
        *,
        dag_id: str | None = None,
        job_root: str | Path | None = None,
        **others: Any,
    ) -> object:
        # As in replay_dag: the caller is the DAG file.
        caller = Path(sys._getframe(1).f_code.co_filename)
        root = str(job_root if job_root is not None else caller.resolve().parent.parent)
        known = DagPipeline(pipeline=pipeline, dag_id=dag_id or pipeline.name, job_root=root)
        declared.append(known)
        if "airflow" not in sys.modules:
            return None
        # A file that imports Airflow itself may use its DAG, e.g. to add a task.
        from tallystick.airflow.dag import replay_dag

        return replay_dag(pipeline, dag_id=dag_id, job_root=root, **others)

    with (
        _logging_restored(),
        _replaced(tallystick.airflow, replay_dag=recorded, gc_dag=_no_dag, compact_dag=_no_dag),
    ):
        loaded = _load(file, airflow=False)
    if (error := loaded.error) is not None:
        raise type(error)(f"{loaded.where}{error.message}", hint=error.hint)
    # A pipeline without a DAG, as in a file that only tests use.
    root = str(file.resolve().parent.parent)
    for value in loaded.names.values():
        if isinstance(value, Pipeline):
            declared.append(DagPipeline(pipeline=value, dag_id=value.name, job_root=root))
    first = {id(one.pipeline): one for one in reversed(declared)}
    return tuple(sorted(first.values(), key=lambda one: one.pipeline.name))


def _check_python_file(file: Path) -> None:
    if not file.is_file() or file.suffix != ".py":
        raise InvalidRequest(
            f"{file} is not a Python file.", hint="name the file that declares the pipeline."
        )


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
