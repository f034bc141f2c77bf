"""Strict canonical JSON: each value has exactly one encoding, and any other encoding is refused.

Bytes on S3 are an API. Encoding is deterministic (sorted keys, no spaces, UTF-8, no floats). Decoding refuses duplicate
keys, floats, NaN, integers beyond 64 bits, deep nesting and unknown formats. The codec validates the fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tallystick.errors import Corrupt

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DEPTH_MAX = 64
BODY_BYTES_MAX = 64 << 20
# An integer beyond 64 bits has at least 19 digits, and so has its text.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * 19

# A string with its quotes; the last one may have no end.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def dumps(value: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of `value`; raises TypeError if canonical JSON cannot represent it (floats, bytes)."""
    try:
        text = _ENCODER.encode(value)
    except ValueError as error:  # NaN, infinity, or an integer of thousands of digits
        raise TypeError(f"canonical JSON contains exact values only: {error}") from error
    _refuse_inexact(value)
    return text.encode()


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


_EXACT = frozenset({str, bool, type(None)})


def _refuse_inexact(value: Any) -> None:
    # json accepts only dict, and the check for any Mapping is slow.
    inside: Iterable[Any]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"expected a string as JSON key, found {key!r}")
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    elif isinstance(value, float):
        raise TypeError(f"canonical JSON: expected exact values only, found the float {value!r}")
    elif isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        raise TypeError(f"{value} does not fit 64 bits")
    else:
        return
    for one in inside:
        # Most values are strings and integers: a call for each of them takes longer than the check.
        kind = type(one)
        if not (kind in _EXACT or (kind is int and INT_MIN <= one <= INT_MAX)):
            _refuse_inexact(one)


def corrupt(where: str, why: str) -> Corrupt:
    """Build the error for an object whose bytes are not valid for its format."""
    return Corrupt(
        f"{where}: {why}.",
        hint="nothing was changed. Find out who wrote this object; restore it from a bucket version if there is "
        "one, or run a version of tallystick that reads this format.",
    )


def loads(body: bytes, *, where: str, format_name: str) -> dict[str, Any]:
    """Return the fields of an object; raises Corrupt if the bytes are not canonical or `format` is not `format_name`."""
    if len(body) > BODY_BYTES_MAX:
        raise corrupt(where, f"expected at most {BODY_BYTES_MAX} bytes, found {len(body)}")
    if _depth_exceeds(body):
        raise corrupt(where, f"nested deeper than {DEPTH_MAX}")
    try:
        text = body.decode("utf-8")
        parse_int = _int64 if _MANY_DIGITS in body.translate(_DIGITS) else None
        value = json.loads(
            text, parse_float=_no_float, parse_constant=_no_float, parse_int=parse_int
        )
        spelling = _ENCODER.encode(value).encode() if isinstance(value, dict) else b""
        if spelling != body:  # a duplicate key is one reason
            json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise corrupt(where, f"expected canonical JSON ({error})") from error
    if not isinstance(value, dict):
        raise corrupt(where, "expected a JSON object, found another JSON value")
    found = value.pop("format", None)
    if found != format_name:
        newer = isinstance(found, str) and found.rsplit("/", 1)[0] == format_name.rsplit("/", 1)[0]
        hint = " (written by another version of tallystick)" if newer else ""
        raise corrupt(where, f"expected format {format_name!r}, found {found!r}{hint}")
    if spelling != body:
        raise corrupt(where, "expected canonical JSON, found another encoding of the same values")
    return value


def _depth_exceeds(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", body).translate(None, delete=_NO_BRACKETS)
    # Each pass removes the innermost level of what is well formed. This is faster by far than a loop over the bytes.
    left = brackets
    for _ in range(DEPTH_MAX):
        left = left.replace(b"[]", b"").replace(b"{}", b"")
        if not left:
            return False
    depth = 0
    for byte in brackets:
        depth += 1 if byte in b"[{" else -1
        if depth > DEPTH_MAX:
            return True
    return False


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"duplicate key {key!r}")
        out[key] = value
    return out


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} is not exact")


def _int64(text: str) -> int:
    value = int(text) if len(text) < 21 else INT_MAX + 1
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError(f"{text[:40]} does not fit 64 bits")
    return value
