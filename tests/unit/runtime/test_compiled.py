"""Compiled loops: arguments and results, the cache, and processes without numba."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from tallystick.engine.decode.json.locate import loops as locate_loops
from tallystick.runtime import compiled as cache
from tallystick.runtime.compiled import (
    FLAG,
    FLAGS_OUT,
    INT32S,
    INT64S,
    INT64S_OUT,
    NUMBER,
    UINT8S,
    ArrayOf,
    Kind,
    LoopGroup,
    TupleOf,
    digest_of,
    part,
)
from tallystick.runtime.intrinsics import Operation, copy_bytes, special_bytes, zeros
from tallystick.runtime.loop_cache import cache_folders

TESTS = Path(__file__).resolve().parents[2]
FACTOR = 3
LEVELS = 4


class Pair(NamedTuple):
    """Two arrays of one argument."""

    read: Any
    written: Any


Swapped = NamedTuple("Pair", [("written", Any), ("read", Any)])  # noqa: UP014 - the same name, other fields


@part
def tripled(value: Any) -> Any:
    return value * FACTOR


def group_of(*several: tuple[FunctionType, tuple[Kind, ...], int]) -> LoopGroup:
    """Return a new group of this module, which has linked nothing yet."""
    group = LoopGroup(__name__)
    for function, kinds, results in several:
        group.loop(*kinds, results=results)(function)
    return group


def add(one: Any, other: Any) -> Any:
    return tripled(one) + other


def fill(pair: Any, number: Any, flags: Any) -> None:
    for i in range(pair.read.size):
        pair.written[i] = pair.read[i] + number
        flags[i] = pair.read[i] > number


def shape(table: Any, negative: Any) -> Any:
    last = np.int64(table[table.shape[0] - 1, table.shape[1] - 1])
    return table.shape[0], table.shape[1], -last if negative else last


def on_the_stack(numbers: Any) -> Any:
    """Return the sum of what is left in an array of the stack that is used again and again."""
    left = 0
    for i in range(numbers.size):
        room = zeros(LEVELS)
        for level in range(LEVELS):
            left += room[level]
            room[level] = numbers[i]
    return left


def copied(source: Any, out: Any) -> None:
    copy_bytes(out, np.int64(1), source, np.int64(0), np.int64(2))


ADD: tuple[Any, Any, int] = (add, (NUMBER, NUMBER), 1)
ALL: list[tuple[Any, Any, int]] = [
    ADD,
    (fill, (TupleOf(Pair, (INT32S, INT64S_OUT)), NUMBER, FLAGS_OUT), 0),
    (shape, (ArrayOf("<f4", 2), FLAG), 3),
    (on_the_stack, (INT64S,), 1),
    (copied, (UINT8S, ArrayOf("|u1")), 0),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache, which this process uses."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    """Return all loops of this module, by name."""
    group = group_of(*ALL)
    return {loop.name: loop for loop in group.loops}


# ---------------------------------------------------------------- arguments and results


def test_a_loop_returns_a_number(loops: dict[str, Any]) -> None:
    assert loops["add"](14, -2) == 40
    assert loops["add"](np.int32(1), 2**62) == 2**62 + 3


def test_a_loop_writes_into_arrays_and_returns_nothing(loops: dict[str, Any]) -> None:
    read, written, flags = np.arange(3, dtype=np.int32), np.zeros(3, np.int64), np.ones(3, np.bool_)
    read.setflags(write=False)
    assert loops["fill"](Pair(read, written), 1, flags) is None
    assert written.tolist() == [1, 2, 3]
    assert flags.tolist() == [False, False, True]


@pytest.mark.parametrize("negative", [False, True])
def test_a_loop_gets_tables_and_returns_several_numbers(
    loops: dict[str, Any], negative: bool
) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert loops["shape"](table, negative) == (2, 3, -5 if negative else 5)


def test_an_array_on_the_stack_begins_with_zeros_each_time(loops: dict[str, Any]) -> None:
    assert loops["on_the_stack"](np.arange(1, 9, dtype=np.int64)) == 0


def test_bytes_are_copied(loops: dict[str, Any]) -> None:
    out = np.zeros(4, np.uint8)
    loops["copied"](np.array([7, 8, 9], np.uint8), out)
    assert out.tolist() == [0, 7, 8, 0]


_READ, _WRITTEN, _FLAGS = np.zeros(3, np.int32), np.zeros(3, np.int64), np.zeros(3, np.bool_)
_UNALIGNED = np.zeros(13, np.uint8)[1:].view(np.int32)
_READ_ONLY = np.zeros(3, np.int64)
_READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((Pair(_READ.astype(np.int64), _WRITTEN), 1, _FLAGS), "writable array of <i8 in 1"),
        ((Pair(_READ[::2], _WRITTEN), 1, _FLAGS), "found aligned writable array of <i4 in 1"),
        ((Pair(_READ.reshape(1, 3), _WRITTEN), 1, _FLAGS), "array of <i4 in 2 dimensions"),
        ((Pair(_READ, _READ_ONLY), 1, _FLAGS), "found contiguous aligned array of <i8"),
        ((Pair(_UNALIGNED, _WRITTEN), 1, _FLAGS), "found contiguous writable array of <i4 in 1"),
        ((Pair([1, 2, 3], _WRITTEN), 1, _FLAGS), "found list"),
        (((_READ, _WRITTEN), 1, _FLAGS), "expected Pair, found tuple"),
        ((Pair(_READ, _WRITTEN), "x", _FLAGS), "invalid literal"),
        ((Pair(_READ, _WRITTEN), 1), "argument 2 is shorter"),
    ],
)
def test_an_argument_of_another_type_is_refused(
    loops: dict[str, Any], arguments: tuple[Any, ...], found: str
) -> None:
    """A loop gets addresses: what it would read or write otherwise is anything."""
    with pytest.raises(TypeError, match=f"fill: .*{found}"):
        loops["fill"](*arguments)
    assert not _WRITTEN.any()


def test_a_prepared_call_sees_changed_arrays_and_exchanged_arguments(loops: dict[str, Any]) -> None:
    read, written, flags = (
        np.arange(3, dtype=np.int32),
        np.zeros(3, np.int64),
        np.zeros(3, np.bool_),
    )
    call = loops["fill"].prepared(Pair(read, written), 1, flags)
    call()
    read += 10
    call()
    assert written.tolist() == [11, 12, 13]
    other = np.zeros(2, np.int64)
    call.replace(Pair(np.array([5, 6], np.int32), other), 2)
    call()
    assert (other.tolist(), flags.tolist()) == ([7, 8], [True, True, True])
    assert written.tolist() == [11, 12, 13]


def test_a_prepared_call_keeps_its_arguments_when_it_returns_results(loops: dict[str, Any]) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    call = loops["shape"].prepared(table, False)
    assert call() == call() == (2, 3, 5)
    call.replace(table[:1])
    assert call() == call() == (1, 3, 2)


def test_a_prepared_call_refuses_an_argument_of_another_type_and_changes_nothing(
    loops: dict[str, Any],
) -> None:
    call = loops["add"].prepared(1, 2)
    with pytest.raises(TypeError, match="add: invalid literal"):
        call.replace(5, "x")
    assert call() == 5


def test_a_prepared_call_holds_its_arrays(loops: dict[str, Any]) -> None:
    """It has only their addresses: memory that is freed would be read, or written into."""
    call = loops["on_the_stack"].prepared(np.zeros(1, np.int64))
    array = np.zeros(3, np.int64)
    held = weakref.ref(array)
    call.replace(array)
    del array
    assert held() is not None
    call.replace(np.zeros(1, np.int64))
    assert held() is None


# ---------------------------------------------------------------- what can be compiled


def test_a_function_that_numba_cannot_compile_is_not_hidden(folder: Path) -> None:
    def impossible(value: Any) -> Any:
        return value.nothing_that_numba_knows

    group = group_of((impossible, (NUMBER,), 1))  # type: ignore[arg-type]
    with pytest.raises(numba.TypingError, match="nothing_that_numba_knows"):
        group.loops[0](1)
    assert not folder.exists()


def test_a_part_is_compiled_into_its_loop(folder: Path) -> None:
    """numba compiles a function for it, and one that counts the references of arrays."""
    assert group_of(ADD, ALL[1]).loops[0](1, 2) == 5
    (file,) = folder.iterdir()
    functions = re.findall(rb"(?<!\w)(?:_ZN(?!08NumbaEnv)|NRT_)\w+", file.read_bytes())
    assert len(functions) == 2  # with the arguments of each loop
    assert all(b"compiling" in name for name in functions)


def test_a_loop_that_allocates_is_refused(folder: Path) -> None:
    """It needs a part of numba that a process without numba does not have."""

    def allocating(count: Any) -> Any:
        return np.zeros(count, np.int64).size

    group = group_of((allocating, (NUMBER,), 1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="allocate nothing and do not raise, found a call of NRT_"):
        group.loops[0](1)


# ---------------------------------------------------------------- the cache


def test_code_in_the_cache_is_not_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert group_of(ADD).loops[0](1, 2) == 5
    (file,) = folder.iterdir()
    written = file.stat().st_mtime_ns
    monkeypatch.setitem(sys.modules, "tallystick.runtime.compiling", None)
    assert group_of(ADD).loops[0](2, 2) == 8
    assert file.stat().st_mtime_ns == written


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_code_is_compiled_again(folder: Path, damage: str) -> None:
    group_of(ADD).loops[0](1, 2)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    changed = bytes([*whole[:-1], whole[-1] ^ 1])
    file.write_bytes({"cut": whole[:-9], "changed": changed, "empty": b""}[damage])
    assert group_of(ADD).loops[0](1, 2) == 5
    assert [one.name for one in folder.iterdir()] == [file.name]
    assert len(file.read_bytes()) == len(whole)


def test_without_a_cache_that_can_be_written_each_process_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file))
    assert group_of(ADD).loops[0](1, 2) == 5
    assert file.read_bytes() == b""


def test_the_code_is_next_to_the_source_or_in_the_cache_folder_of_the_user() -> None:
    source = Path("/app/loops.py")
    of_user = {"XDG_CACHE_HOME": "/x"}
    assert cache_folders(source, of_user) == [Path("/app/__pycache__"), Path("/x/tallystick")]
    assert cache_folders(source, {"HOME": "/me"})[1] == Path("/me/.cache/tallystick")
    assert cache_folders(source, of_user | {"NUMBA_CACHE_DIR": "/c"}) == [Path("/c")]


def test_the_second_folder_is_used_if_the_first_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    folders = [tmp_path / "file", tmp_path / "second"]
    monkeypatch.setattr(cache, "cache_folders", lambda *_: folders)
    assert group_of(ADD).loops[0](1, 2) == 5
    assert len(list(folders[1].iterdir())) == 1


def test_the_digest_covers_the_functions_that_an_operation_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {digest_of(locate_loops.loops)}
    for name in ("_bytes_at", "_repeated"):
        with monkeypatch.context() as patched:
            patched.setitem(special_bytes.define.__globals__, name, lambda *_: None)
            found.add(digest_of(locate_loops.loops))
    assert len(found) == 3


def test_the_digest_covers_functions_parts_constants_and_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """numba's own cache overlooks constants and functions of other modules."""

    def subtract(one: Any, other: Any) -> Any:
        return tripled(one) - other

    def digest(*several: Any) -> str:
        return digest_of(group_of(*several).loops)

    def of(cls: Any) -> str:
        cls.__qualname__, cls.__module__ = "Pair", __name__
        return digest((fill, (TupleOf(cls, (INT64S_OUT, INT64S_OUT)), NUMBER, FLAGS_OUT), 0))

    before = digest(ADD)
    assert of(Pair) != of(Swapped)
    others = {
        digest((subtract, (NUMBER, NUMBER), 1)),
        digest((add, (NUMBER, FLAG), 1)),
        digest((add, (NUMBER, NUMBER), 0)),
        digest(ADD, ALL[-1]),
    }
    for name, value in (("FACTOR", 4), ("tripled", part(lambda value: value + value + value))):
        with monkeypatch.context() as patched:
            patched.setitem(add.__globals__, name, value)
            others.add(digest(ADD))
    before_copy = digest(ALL[-1])
    monkeypatch.setitem(copied.__globals__, "copy_bytes", Operation(zeros.define))
    assert digest(ALL[-1]) != before_copy
    monkeypatch.undo()
    monkeypatch.setattr(cache, "_features", lambda: "-avx2")
    others.add(digest(ADD))
    monkeypatch.undo()
    assert len(others) == 7
    assert before not in others
    assert digest(ADD) == before


def test_several_threads_link_once(folder: Path) -> None:
    group = group_of(ADD)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: group.loops[0](1, 2), range(8))) == {5}
    assert len(list(folder.iterdir())) == 1


# ---------------------------------------------------------------- the loops of tallystick

READS = {
    "batches": "from tallystick.kafka import decode; decode.warm()",
    "JSON": "from unit.engine.decode.test_json_nested import DECODER; "
    "assert DECODER.decode_values(pa.array([b'{\"id\": 1}'] * 2, pa.binary())).rows.num_rows == 2",
    "Protobuf": "from unit.engine.decode.test_protobuf import read, reader_of; "
    "assert len(read(reader_of('Everything'), b'', b'').rows) == 2",
    "Avro": "from tallystick.spark.precompile import _compile_avro; _compile_avro()",
    "CSV": "from tallystick.spark.precompile import _compile_csv; _compile_csv()",
}


@pytest.mark.parametrize("what", READS)
def test_after_set_up_a_task_reads_without_numba(what: str) -> None:
    """numba takes half a second of CPU time to load; compiling would take seconds, in each process."""
    code = (
        "import sys, pyarrow as pa\n"
        "from tallystick.spark.precompile import compile_decoders\n"
        "compile_decoders()\n"
        "assert not any(name.split('.')[0] == 'numba' for name in sys.modules)\n"
        "sys.modules['numba'] = None\n"
        f"{READS[what]}\n"
    )
    subprocess.run([sys.executable, "-m", "tallystick.spark.precompile"], check=True)
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
