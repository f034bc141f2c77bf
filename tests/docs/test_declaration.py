"""The reference of the declaration has each argument with its default, and its examples do what it states."""

from __future__ import annotations

import dataclasses
import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tallystick import (
    Avro,
    Column,
    Csv,
    Debezium,
    Format,
    Json,
    Pipeline,
    Protobuf,
    Raw,
    Table,
    Text,
    Topic,
    Topics,
    Upkeep,
)
from tallystick.airflow import replay_dag
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.format.types import PRIMITIVES
from tallystick.tables.schema import arrow_type

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "declaration.md").read_text()
SUBJECTS = (
    *(Pipeline, Topic, Topics, Json, Avro, Protobuf, Csv, Debezium, Text, Raw, Format),
    *(Column, Table, Upkeep, replay_dag),
)


def section(title: str, level: int = 2) -> str:
    """Return the text below a heading, to the next heading of the same level."""
    mark = "#" * level
    _, _, rest = PAGE.partition(f"\n{mark} {title}\n")
    assert rest, title
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the tables of a text, without their headings."""
    found: list[list[str]] = []
    for table in re.findall(r"^\|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE):
        found += [
            [c.strip() for c in line.strip("| \n").split(" | ")] for line in table.splitlines()
        ]
    return found


def declared(subject: Any) -> dict[str, str]:
    """Return the arguments of a class or function, with the default as the page writes it."""
    out: dict[str, str] = {}
    factories = (
        {f.name: f.default_factory for f in dataclasses.fields(subject)}
        if dataclasses.is_dataclass(subject)
        else {}
    )
    for name, argument in inspect.signature(subject).parameters.items():
        default = argument.default
        factory = factories.get(name, dataclasses.MISSING)
        if factory is not dataclasses.MISSING:
            default = factory()  # type: ignore[operator]
        out[name] = "required" if default is inspect.Parameter.empty else f"`{_shown(default)}`"
    return out


def _shown(default: Any) -> str:
    if isinstance(default, timedelta):
        return "timedelta(0)" if not default else f"timedelta(minutes={default.seconds // 60})"
    text = repr(default)
    return text if '"' in text else text.replace("'", '"')


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__)
def test_each_argument_has_a_row_with_its_default(subject: Any) -> None:
    text = section(subject.__name__).split("\n### ")[0]
    found = {name.strip("`"): default for name, default, *_ in rows(text) if name.startswith("`")}
    assert found == declared(subject)


# ---------------------------------------------------------------- types

TYPES = {row[0].strip("`"): row[1:] for row in rows(section("Types and their JSON values", 3))}
GOOD = [(kind, value) for kind, (good, _) in TYPES.items() for value in re.findall("`(.*?)`", good)]
DEAD = [
    (kind, value, why)
    for kind, (_, dead) in TYPES.items()
    for value, why in re.findall(r"`(.*?)` \((\w+)\)", dead)
]


def test_the_table_has_every_type() -> None:
    assert {re.sub(r"[(\[].*", "", kind) for kind in TYPES} == {*PRIMITIVES, "decimal", "fixed"}
    assert (
        len(GOOD) + len(DEAD) == sum(len(re.findall("`", "".join(c))) for c in TYPES.values()) / 2
    )


@pytest.mark.parametrize(("kind", "value"), GOOD)
def test_a_value_that_becomes_a_row_is_in_it(kind: str, value: str) -> None:
    decoded = _decode(kind, value)
    assert not decoded.reasons
    column = decoded.rows.column("x")
    assert (column.type, column.null_count, len(column)) == (arrow_type(kind), 0, 1)


@pytest.mark.parametrize(("kind", "value", "why"), DEAD)
def test_a_value_that_becomes_a_dead_letter_has_the_kind_of_the_table(
    kind: str, value: str, why: str
) -> None:
    [reason] = _decode(kind, value).reasons
    assert (reason.kind, reason.field) == (why, "x")


def _decode(kind: str, value: str) -> Any:
    body = b'{"x": ' + value.encode() + b', "unknown": {"deep": [1]}}'
    return JsonDecoder(Json([Column("x", kind)])).decode_values(pa.array([body], pa.binary()))


# ---------------------------------------------------------------- code


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for folder in ("dags", "spark_jobs"):
        (tmp_path / folder).mkdir()
    dag_file, job = tmp_path / "dags" / "orders.py", tmp_path / "spark_jobs" / "orders.py"
    dag_file.write_text(blocks[0] + blocks[1])
    job.write_text(blocks[2])
    found: dict[str, Any] = {"__name__": "orders"}
    exec(compile(dag_file.read_text(), str(dag_file), "exec"), found)
    assert [t.task_id for t in found["dag"].tasks] == ["plan", "stage", "commit"]
    transform: dict[str, Any] = {"__name__": "orders_job"}
    exec(compile(job.read_text(), str(job), "exec"), transform)
    records = pa.table({"id": [1]})
    assert transform["transform"](records) == {"orders": records}
