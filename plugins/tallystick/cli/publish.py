"""`tally publish`: publishes what is pending. The declaration comes from the DAG file, which the caller names."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tallystick.cli.errors import busy
from tallystick.cli.text import INDENT, many, paragraph, span
from tallystick.connections.resolve import resolve
from tallystick.connections.settings import S
from tallystick.errors import InvalidPipeline, InvalidRequest
from tallystick.lake import Lake
from tallystick.operations.publish import NotPublished, Published, publish
from tallystick.operations.register import Registered, register
from tallystick.outputs.opening import open_output
from tallystick.outputs.port import Output
from tallystick.outputs.registrations.opening import open_registrar
from tallystick.pipeline import DeclaredOutput, Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """The result of a call: what it published and registered, and what it could not."""

    uri: str
    pipeline: str
    version: int
    published: tuple[Published, ...]
    failed: tuple[NotPublished, ...]
    registered: tuple[Registered, ...] = ()


def declared_in(file: Path, name: str) -> Pipeline:
    """Run a Python file, and return its pipeline of that name.

    Raises InvalidRequest if there is no such file or pipeline, InvalidPipeline if the file cannot be loaded.
    """
    spec = importlib.util.spec_from_file_location(f"tally_publish_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise InvalidRequest(
            f"{file} is not a Python file.", hint="name the file that declares the pipeline."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's own code, which may raise any error
        raise InvalidPipeline(
            f"{file} cannot be loaded: {type(error).__name__}: {error}.",
            hint="run it with Airflow's own Python, from the project's folder.",
        ) from error
    found = [v for v in vars(module).values() if isinstance(v, Pipeline) and v.name == name]
    if not found:
        raise InvalidRequest(
            f"{file} declares no pipeline named {name!r}.",
            hint="name the file that declares the pipeline of the lake; `tally status` prints its name.",
        )
    return found[0]


def published(lake: Lake, file: Path, only: Sequence[str]) -> Publishing:
    """Publish and register all that is pending, of all outputs and registrations or those in `only`.

    Safe to repeat: `operations.publish.publish` and `operations.register.register` are.
    """
    from tallystick.tables.rows import StoredRows  # pyarrow is slow to import

    pipeline = declared_in(file, lake.load_existing().root.pipeline)
    declared = {output.name: output for output in pipeline.outputs}
    catalogs = {one.name: one for one in pipeline.registrations}
    if unknown := sorted(set(only) - declared.keys() - catalogs.keys()):
        raise InvalidRequest(
            f"pipeline {pipeline.name} declares no output {unknown[0]!r}.",
            hint=f"use some of {', '.join(sorted({*declared, *catalogs})) or 'none'}.",
        )
    done: list[Published] = []
    registered: list[Registered] = []
    with busy("publishing"):
        failed = publish(
            lake,
            {
                name: partial(_opened, one, lake)
                for name, one in declared.items()
                if name in (only or declared)
            },
            rows_of=StoredRows,
            watch=done.append,
        )
        failed += register(
            lake,
            {
                name: partial(open_registrar, one, settings=_settings_named)
                for name, one in catalogs.items()
                if name in (only or catalogs)
            },
            targets=pipeline.targets,
            watch=registered.append,
        )
    return Publishing(
        uri=lake.store.uri,
        pipeline=pipeline.name,
        version=lake.load_existing().root.version,
        published=tuple(done),
        failed=failed,
        registered=tuple(registered),
    )


def _opened(declared: DeclaredOutput, lake: Lake) -> Output:
    return open_output(declared, settings=_settings_named, store=lake.store)


def _settings_named(kind: type[S], connection: str) -> S:
    """Return a connection from the environment or the secrets folder. Only Airflow's tasks can read its own ones."""
    return resolve(kind, connection, environ=os.environ)


def text(answer: Publishing) -> str:
    """Return the answer as text: what was published, by interval, and what was not."""
    parts = [paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}")]
    if not answer.published and not answer.registered and not answer.failed:
        return "\n\n".join([*parts, "Nothing is pending."])
    if answer.published:
        lines = [f"{many(len(answer.published), 'interval')} published:"]
        for done in answer.published:
            resumed = ", begun earlier" if done.resumed else ""
            line = (
                f"{span(done.interval)} to {done.output}: {many(done.rows, 'row')}, generation "
                f"{done.generation}{resumed}"
            )
            lines.append(paragraph(line, indent=INDENT))
        parts.append("\n".join(lines))
    if answer.registered:
        lines = [f"{many(len(answer.registered), 'catalog')} registered:"]
        for one in answer.registered:
            line = f"version {one.version} in {one.registration}: {many(one.tables, 'table')}"
            lines.append(paragraph(line, indent=INDENT))
        parts.append("\n".join(lines))
    for failure in answer.failed:
        where = (
            f"{span(failure.interval)} to {failure.output}" if failure.interval else failure.output
        )
        parts.append(paragraph(f"NOT PUBLISHED: {where}: {failure.error.kind}: {failure.error}"))
    return "\n\n".join(parts)
