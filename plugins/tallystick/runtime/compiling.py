"""The compiler of loops, which uses numba: functions in, the machine code of a group of loops out.

Importing this module loads numba. Only a process that finds no code in the cache does.
"""

# mypy does not see the types of numba's decorators.
# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from tallystick.runtime import intrinsics
from tallystick.runtime.compiled import ArrayOf, Kind, Loop, Part, TupleOf

# numba's wrapper of a loop names these functions, and calls them only if the loop raises. Loops do not raise.
_NEVER_CALLED = frozenset(
    {
        "NRT_Free",
        "NRT_MemInfo_call_dtor",
        "numba_do_raise",
        "numba_gil_ensure",
        "numba_gil_release",
        "numba_runtime_build_excinfo_struct",
        "numba_unpickle",
    }
)
_OF_PYTHON = ("Py", "_Py")
_WORD = ir.IntType(64)


def compiled(loops: Sequence[Loop]) -> bytes:
    """Return an object file with a function `void name(int64_t *slots)` for each loop.

    `slots` has the numbers of the arguments (`Kind.put`), and after them room for the results. Raises numba's error if a
    function cannot be compiled, and ValueError if a loop needs a function that a process without numba does not have.
    """
    known: dict[int, Any] = {}
    whole: Any = None
    exports = []
    for loop in loops:
        entry = _entry(loop, known)
        module = llvm.parse_assembly(entry.inspect_llvm())
        exports.append(_EXPORT.format(name=loop.name, target=entry.native_name))
        if whole is None:
            whole = module
        else:
            whole.link_in(module)
    missing = {f.name for f in whole.functions if f.is_declaration and not _is_known(f.name)}
    if unexpected := sorted(missing - _NEVER_CALLED):
        raise ValueError(
            f"expected loops that allocate nothing and do not raise, found a call of {unexpected[0]}"
        )
    stubs = [_STUB.format(name=name) for name in sorted(missing)]
    head = f'target triple = "{whole.triple}"\ntarget datalayout = "{whole.data_layout}"\n'
    whole.link_in(llvm.parse_assembly(head + "declare void @abort()\n" + "".join(stubs + exports)))
    whole.verify()
    machine = llvm.Target.from_triple(whole.triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=get_host_cpu_features(), opt=3, reloc="pic", jit=True
    )
    _optimize(whole, machine, {loop.name for loop in loops})
    return bytes(machine.emit_object(whole))


def _optimize(module: Any, machine: Any, exported: Collection[str]) -> None:
    """Optimize a linked module once more as a whole, of which only the exported functions are called from outside.

    numba calls each function through a pointer, because another library may define it, and counts the references of each
    array that it passes on. None of that is left when the function is a part of its caller.
    """
    for function in module.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)


_STUB = """
define void @"{name}"() {{
  call void @abort()
  unreachable
}}
"""
_EXPORT = """
declare void @"{target}"(ptr)
define void @"{name}"(ptr %slots) {{
  call void @"{target}"(ptr %slots)
  ret void
}}
"""


def _is_known(name: str) -> bool:
    """Return True for functions that every process has: LLVM's own, of the C library, and of Python."""
    return name.startswith(("llvm.", *_OF_PYTHON)) or name in (
        "abort",
        "memcpy",
        "memmove",
        "memset",
    )


def _entry(loop: Loop, known: dict[int, Any]) -> Any:
    """Return numba's function with C's calling convention that takes the slots."""
    run, arguments, results = _resolved(loop.function, known), _unpacked(loop.kinds), loop.results
    words = sum(kind.words for kind in loop.kinds)

    def without_results(slots):
        run(*arguments(slots))

    def with_one(slots):
        slots[words] = run(*arguments(slots))

    def with_several(slots):
        found = run(*arguments(slots))
        for number in range(results):
            slots[words + number] = found[number]

    body = with_several if results > 1 else with_one if results else without_results
    return numba.cfunc(types.void(types.CPointer(types.int64)))(body)


def _resolved(function: FunctionType, known: dict[int, Any]) -> Any:
    """Return numba's function, in whose globals all parts are numba's functions too."""
    if id(function) not in known:
        space = dict(function.__globals__)
        for name, value in function.__globals__.items():
            if isinstance(value, intrinsics.Operation):
                space[name] = value.of_numba()
            elif isinstance(value, Part | Loop) and name in function.__code__.co_names:
                space[name] = _resolved(value.function, known)
        copied = FunctionType(function.__code__, space, function.__name__)
        copied.__module__, copied.__qualname__ = function.__module__, function.__qualname__
        known[id(function)] = numba.njit(copied)
    return known[id(function)]


def _type_of(kind: Kind) -> Any:
    if isinstance(kind, ArrayOf):
        item = numba.from_dtype(np.dtype(kind.dtype))
        return types.Array(item, kind.dimensions, "C", readonly=not kind.writable)
    if isinstance(kind, TupleOf):
        return types.NamedTuple([_type_of(one) for one in kind.fields], kind.cls)
    return types.boolean if kind.is_flag else types.int64  # type: ignore[attr-defined]


def _unpacked(kinds: Sequence[Kind]) -> Any:
    """Return an operation of numba that makes the arguments from the slots, without owning any memory."""
    wanted: Any = types.Tuple([_type_of(kind) for kind in kinds])

    def unpack(typing_context, slots):
        def generate(context, builder, signature, arguments):
            taken = 0

            def word():
                nonlocal taken
                place = builder.gep(arguments[0], [ir.Constant(_WORD, taken)])
                taken += 1
                return builder.load(place)

            def value(kind):
                if isinstance(kind, types.Array):
                    return _array(context, builder, kind, word)
                if isinstance(kind, types.BaseTuple):
                    members: Any = kind
                    several = [value(one) for one in members]
                    return context.make_tuple(builder, kind, several)
                if kind == types.boolean:
                    return builder.icmp_signed("!=", word(), ir.Constant(_WORD, 0))
                return word()

            found = [value(kind) for kind in wanted.types]
            return context.make_tuple(builder, wanted, found)

        return wanted(slots), generate

    return intrinsic(unpack)


def _array(context, builder, kind, word):
    array = context.make_array(kind)(context, builder)
    item = context.get_data_type(kind.dtype)
    size = context.get_abi_sizeof(item)
    address = builder.inttoptr(word(), item.as_pointer())
    shape = [word() for _ in range(kind.ndim)]
    strides = [ir.Constant(_WORD, size)]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    populate_array(
        array,
        data=address,
        shape=shape,
        strides=strides,
        itemsize=ir.Constant(_WORD, size),
        meminfo=None,
    )
    return array._getvalue()
