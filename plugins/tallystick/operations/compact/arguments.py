"""The arguments of a compaction by Spark, as text: the task that starts it writes them, and its driver reads them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.operations.compact.choosing import FILES_MIN, CompactOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactArguments:
    """The arguments of the job: a lake, and what to compact."""

    lake_uri: str
    options: CompactOptions


def to_argv(arguments: CompactArguments) -> list[str]:
    """Return the arguments as text; `parse_compact_arguments` reads them."""
    options = arguments.options
    size = options.target_bytes
    return [
        *("--lake", arguments.lake_uri, "--until", keys.instant(options.until)),
        *(part for name in options.tables for part in ("--table", name)),
        *(() if size is None else ("--target-bytes", str(size))),
        *("--min-files", str(options.files_min)),
    ]


def parse_compact_arguments(argv: Sequence[str]) -> CompactArguments:
    """Parse the arguments; raises InvalidRequest.

    They are `--lake <lake URI>` and `--until <instant>`, and optionally `--table <name>` (once or more),
    `--target-bytes <number>` and `--min-files <number>`.
    """
    parser = _ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--until", required=True)
    parser.add_argument("--table", action="append", default=[], dest="tables")
    parser.add_argument("--target-bytes", type=int)
    parser.add_argument("--min-files", type=int, default=FILES_MIN)
    found = parser.parse_args(argv)
    try:
        until = keys.parse_instant(found.until)
    except ValueError as error:
        raise _invalid(str(error)) from error
    return CompactArguments(
        lake_uri=found.lake,
        options=CompactOptions(
            until=until,
            tables=tuple(found.tables),
            target_bytes=found.target_bytes,
            files_min=found.min_files,
        ),
    )


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _invalid(message)


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(
        f"arguments of the compaction: {message}.",
        hint="start it as `spark-submit compact_files.py --lake <lake URI> --until 2026-01-01T00:00:00.000Z`.",
    )
