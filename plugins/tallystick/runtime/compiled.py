"""Compiled loops: functions over arrays that run as machine code, which is compiled once per machine.

A process that finds the machine code of a loop in a cache links it, which takes some hundredths of a second. Otherwise
it compiles the loop with numba, which takes seconds, and leaves the code there. Only compiling loads numba; loading
numba and the functions that numba itself has cached takes more than a second of CPU time per process.

The code is cached under a digest of everything that decides it: the functions, the constants that they use, the
compiler and the processor. The cache is NUMBA_CACHE_DIR, or `__pycache__` next to the function's file, or the user's
cache folder. If none of them is writable, every process compiles.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import CodeType, FunctionType
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa

from tallystick.runtime.intrinsics import Operation
from tallystick.runtime.loop_cache import cache_folders, read_code, write_code

F = TypeVar("F", bound=Callable[..., Any])
# A part of the digest, which does not cover the module `compiling`: change it with what that generates.
_CODE_FORMAT = "tallystick.loops/3"


# ---------------------------------------------------------------- the types of arguments


class Kind(Protocol):
    """The type of an argument, which is passed as some whole numbers of 64 bits: `words` of them."""

    @property
    def words(self) -> int: ...

    def put(self, slots: list[int], value: Any) -> None:
        """Append the numbers of a value. Raises TypeError if it has another type."""
        ...


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number of 64 bits, or a boolean if `is_flag`."""

    is_flag: bool = False

    @property
    def words(self) -> int:
        return 1

    def put(self, slots: list[int], value: Any) -> None:
        slots.append(int(value))


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A contiguous array of numpy: its address, and its length in each dimension. `writable`: the loop writes into it."""

    dtype: str
    dimensions: int = 1
    writable: bool = True
    # To compare a dtype with its name takes microseconds.
    _dtype: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_dtype", np.dtype(self.dtype))

    @property
    def words(self) -> int:
        return 1 + self.dimensions

    def put(self, slots: list[int], value: Any) -> None:
        if (
            type(value) is not np.ndarray
            or value.dtype != self._dtype
            or value.ndim != self.dimensions
            or not ((flags := value.flags).c_contiguous and flags.aligned)
            or (self.writable and not flags.writeable)
        ):
            raise TypeError(f"expected {self}, found {_described(value)}")
        # numpy's own ways to an address build objects in Python, which takes ten times as long.
        slots.append(pa.py_buffer(value).address)
        slots.extend(value.shape)


@dataclass(frozen=True, slots=True)
class TupleOf:
    """A named tuple of arrays, all of its fields in their order. `names`: those of the fields, a part of the digest."""

    cls: Any
    fields: tuple[Kind, ...]
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.cls._fields)

    @property
    def words(self) -> int:
        return sum(kind.words for kind in self.fields)

    def put(self, slots: list[int], value: Any) -> None:
        if type(value) is not self.cls:
            raise TypeError(f"expected {self.cls.__name__}, found {_described(value)}")
        for kind, one in zip(self.fields, value, strict=True):
            kind.put(slots, one)


def _described(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    flags = value.flags
    traits = {
        "contiguous": flags.c_contiguous,
        "aligned": flags.aligned,
        "writable": flags.writeable,
    }
    found = [name for name, is_so in traits.items() if is_so]
    return " ".join([*found, f"array of {value.dtype.str} in {value.ndim} dimensions"])


NUMBER = Number()
FLAG = Number(is_flag=True)
# Arrays of one dimension, which the loop reads, and those that it writes into.
UINT8S, UINT8S_OUT = ArrayOf("|u1", writable=False), ArrayOf("|u1")
INT32S, INT32S_OUT = ArrayOf("<i4", writable=False), ArrayOf("<i4")
INT64S, INT64S_OUT = ArrayOf("<i8", writable=False), ArrayOf("<i8")
FLAGS, FLAGS_OUT = ArrayOf("|b1", writable=False), ArrayOf("|b1")


# ---------------------------------------------------------------- the functions


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A function that only compiled loops call."""

    function: FunctionType


def part(function: F) -> F:
    """Declare a function that only compiled loops call; its types are those of the calls."""
    return cast("F", Part(cast("FunctionType", function)))


@dataclass(slots=True, eq=False)
class Loop:
    """A function that Python calls and that runs as machine code, without the interpreter's lock.

    `results`: the whole numbers that it returns: none, one, or a tuple of several. Arguments must have the declared
    types: raises TypeError. Raises numba's error if numba cannot compile the function.
    """

    function: FunctionType
    kinds: tuple[Kind, ...]
    results: int
    group: LoopGroup
    _address: Callable[[Any], None] | None = None

    @property
    def name(self) -> str:
        """Its name, which no other loop of its group has."""
        return self.function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop."""
        return self.prepared(*arguments)()

    def prepared(self, *arguments: Any) -> LoopCall:
        """Return a call with these arguments, for a loop that is called often with the same arrays."""
        if self._address is None:
            self._address = self.group.linked()[self.name]
        return LoopCall(self, self._address, arguments)


class LoopCall:
    """A call of a loop, which can be repeated: its arguments are checked once. Not for several threads at once.

    It holds its arrays. Between two calls, their content may change, and `replace` exchanges arguments.
    """

    __slots__ = ("_address", "_arguments", "_block", "_loop", "_words")

    def __init__(
        self, loop: Loop, address: Callable[[Any], None], arguments: Sequence[Any]
    ) -> None:
        self._loop = loop
        self._address = address
        # The arrays must exist as long as their addresses are used.
        self._arguments = list(arguments)
        slots = self._slots(loop.kinds, arguments)
        self._words = len(slots)
        self._block: Any = (ctypes.c_int64 * (len(slots) + loop.results))(*slots)

    def replace(self, *first: Any) -> None:
        """Exchange the first arguments. Raises TypeError, as a call, and then changes nothing."""
        slots = self._slots(self._loop.kinds[: len(first)], first)
        self._block[: len(slots)] = slots
        self._arguments[: len(first)] = first

    def __call__(self) -> Any:
        """Run the loop."""
        self._address(self._block)
        results = self._loop.results
        if results > 1:
            return tuple(self._block[self._words :])
        return self._block[self._words] if results else None

    def _slots(self, kinds: Sequence[Kind], arguments: Sequence[Any]) -> list[int]:
        slots: list[int] = []
        try:
            for kind, value in zip(kinds, arguments, strict=True):
                kind.put(slots, value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{self._loop.name}: {error}") from error
        return slots


@dataclass(slots=True, eq=False)
class LoopGroup:
    """The loops of one module, which are compiled and linked together."""

    module: str
    loops: list[Loop] = field(default_factory=list)
    _linked: Mapping[str, Callable[[Any], None]] | None = None
    _lock: Lock = field(default_factory=Lock)

    def loop(self, *kinds: Kind, results: int = 0) -> Callable[[F], F]:
        """Return a decorator for a function of the module with arguments of these types."""

        def decorate(function: F) -> F:
            made = Loop(cast("FunctionType", function), kinds, results, self)
            self.loops.append(made)
            return cast("F", made)

        return decorate

    def linked(self) -> Mapping[str, Callable[[Any], None]]:
        """Return the machine code of the loops by name, linked at the first call.

        Safe to repeat, in several threads and processes: each may compile, and all compile the same.
        """
        with self._lock:
            if self._linked is None:
                self._linked = _link(self, self._code())
            return self._linked

    def _code(self) -> bytes:
        name = f"{self.module.rpartition('.')[2]}.{digest_of(self.loops)[:16]}.loops"
        folders = cache_folders(Path(cast("str", sys.modules[self.module].__file__)), os.environ)
        for folder in folders:
            if (code := read_code(folder / name)) is not None:
                return code
        from tallystick.runtime.compiling import compiled

        code = compiled(self.loops)
        for folder in folders:
            # A cache that cannot be written is no error: the next process compiles, too.
            with suppress(OSError):
                write_code(folder / name, code)
                break
        return code


# ---------------------------------------------------------------- the digest


def digest_of(loops: Sequence[Loop]) -> str:
    """Return a digest of all that decides the code of the loops: functions, constants, compiler and processor."""
    import llvmlite
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    machine = (llvm.get_default_triple(), llvm.get_host_cpu_name(), _features())
    # Each minor version of numba has one of llvmlite, which is loaded anyway.
    compiler = (llvmlite.__version__, sys.version_info[:2])
    digest.update(repr((_CODE_FORMAT, machine, compiler)).encode())
    for loop in loops:
        digest.update(repr((loop.name, loop.kinds, loop.results)).encode())
        for part_of_it in _described_function(loop.function, set()):
            digest.update(part_of_it)
    return digest.hexdigest()


def _features() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_features().flatten())


def _described_function(function: FunctionType, known: set[FunctionType]) -> Iterator[bytes]:
    """Yield what a function and all that it uses consist of. The code of a function is its bytecode."""
    if function in known:
        return
    known.add(function)
    yield from _described_code(function.__code__)
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name)
        if isinstance(value, Part | Loop):
            yield from _described_function(value.function, known)
        elif isinstance(value, Operation):
            yield from _described_function(value.define, known)
        elif isinstance(value, FunctionType):  # of an operation: loops call none
            yield from _described_function(value, known)
        elif isinstance(value, np.ndarray):
            yield repr((name, value.dtype.str, value.shape)).encode() + value.tobytes()
        elif isinstance(value, int | float | tuple | np.generic):
            yield repr((name, value)).encode()


def _described_code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_argcount, code.co_names, code.co_varnames)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _described_code(constant)
        else:
            yield repr(constant).encode()


def _names(code: CodeType) -> set[str]:
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


# ---------------------------------------------------------------- linking

_linkers: list[Any] = []
_linking = Lock()
_Call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # releases the interpreter's lock during a call


def _link(group: LoopGroup, code: bytes) -> Mapping[str, Callable[[Any], None]]:
    import llvmlite.binding as llvm

    with _linking:
        if not _linkers:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _linkers.append(llvm.create_lljit_compiler())
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for loop in group.loops:
            library.export_symbol(loop.name)
        linked = library.link(_linkers[0], f"{group.module}.{len(_linkers)}")
        # Without it, the code would be freed with the last reference.
        _linkers.append(linked)
    return {loop.name: cast("Any", _Call(linked[loop.name])) for loop in group.loops}
