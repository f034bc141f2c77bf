"""The codec: strict JSON from type hints and back; an error contains the path of the value that does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, NewType

import pytest

from tallystick.errors import Corrupt, InvalidPipeline
from tallystick.format import keys
from tallystick.format.codec import NOT_STORED, StoredObject, StoredValue

Name = NewType("Name", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(StoredValue):
    AS_LIST: ClassVar[bool] = True

    left: int
    right: str | None = None

    def __post_init__(self) -> None:
        if self.left < 0:
            raise ValueError(f"{self.left} is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner(StoredValue):
    name: Name
    kind: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        keys.check_name(self.name, "inner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything(StoredObject):
    FORMAT: ClassVar[str] = "tallystick.test/1"

    number: int
    flag: bool
    text: str
    at: datetime
    wait: timedelta | None
    pairs: tuple[Pair, ...]
    words: Sequence[str]
    inner: Inner | None
    named: Mapping[str, Inner]
    counts: Mapping[str, int]
    free: Mapping[str, Any]
    mixed: tuple[int | str | None, ...]
    extra: Mapping[str, bytes] = field(default_factory=dict, metadata=NOT_STORED)


SAMPLE = Everything(
    number=7,
    flag=True,
    text="é",
    at=datetime(2013, 1, 1, 5, tzinfo=UTC),
    wait=timedelta(seconds=1.5),
    pairs=(Pair(left=1), Pair(left=2, right="x")),
    words=("a", "b"),
    inner=Inner(name=Name("n")),
    named={"one": Inner(name=Name("m"), kind="b")},
    counts={"x": 1},
    free={"any": [1, None, {"k": True}]},
    mixed=(1, "a", None),
)
STORED = {
    "number": 7,
    "flag": True,
    "text": "é",
    "at": "2013-01-01T05:00:00.000Z",
    "wait": 1500,
    "pairs": [[1, None], [2, "x"]],
    "words": ["a", "b"],
    "inner": {"name": "n", "kind": "a"},
    "named": {"one": {"name": "m", "kind": "b"}},
    "counts": {"x": 1},
    "free": {"any": [1, None, {"k": True}]},
    "mixed": [1, "a", None],
}


def test_every_kind_of_hint_has_a_stored_form_and_round_trips() -> None:
    assert SAMPLE.to_json() == STORED
    assert Everything.from_json(STORED, "here") == SAMPLE
    assert Everything.decode(SAMPLE.encode(), where="here") == SAMPLE
    assert Everything.from_text(SAMPLE.to_text(), "here") == SAMPLE
    without = {"wait": None, "inner": None}
    assert Everything.from_json(STORED | without, "here").to_json() == STORED | without


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "7"])
def test_a_text_that_is_no_stored_value_is_refused(text: str) -> None:
    with pytest.raises(Corrupt, match=r"^here: expected the text of a stored value"):
        Everything.from_text(text, "here")


def test_a_field_that_is_not_stored_is_not_written_and_is_refused_on_read() -> None:
    with pytest.raises(Corrupt, match="unknown field 'extra'"):
        Everything.from_json(STORED | {"extra": {}}, "here")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"number": "7"}, "here.number: expected an integer, found a string"),
        ({"number": True}, "here.number: expected an integer, found a boolean"),
        ({"number": None}, "here.number: expected an integer, found null"),
        ({"flag": 1}, "here.flag: expected a boolean, found an integer"),
        ({"text": ["secret"]}, "here.text: expected a string, found a list"),
        ({"at": 5}, "here.at: expected a string, found an integer"),
        ({"at": "2013-01-01"}, "here.at: expected an instant"),
        ({"wait": "1 s"}, "here.wait: expected an integer, found a string"),
        ({"pairs": {}}, "here.pairs: expected a list, found an object"),
        ({"pairs": [[1, None], {}]}, "here.pairs[1]: expected a list of left, right, found an obj"),
        ({"pairs": [[1]]}, "here.pairs[0]: expected a list of left, right, found 1 values"),
        ({"pairs": [[1, 2]]}, "here.pairs[0].right: expected a string, found an integer"),
        ({"pairs": [[-1, None]]}, "here.pairs[0]: -1 is negative"),
        ({"words": "ab"}, "here.words: expected a list, found a string"),
        ({"words": ["a", 1]}, "here.words[1]: expected a string, found an integer"),
        ({"inner": []}, "here.inner: expected an object, found a list"),
        ({"inner": {"name": "n"}}, "here.inner: missing field 'kind'"),
        ({"inner": {"name": "n", "kind": "a", "x": 1}}, "here.inner: unknown field 'x'"),
        ({"inner": {"name": "n", "kind": "c"}}, "here.inner.kind: expected one of a, b, found 'c'"),
        (
            {"inner": {"name": "n", "kind": []}},
            "here.inner.kind: expected one of a, b, found a list",
        ),
        ({"inner": {"name": "N", "kind": "a"}}, "here.inner: inner name 'N' is not allowed"),
        ({"named": {"one": 1}}, "here.named['one']: expected an object, found an integer"),
        ({"named": {"one": {"name": 1, "kind": "a"}}}, "here.named['one'].name: expected a string"),
        ({"counts": {"x": "1"}}, "here.counts['x']: expected an integer, found a string"),
        ({"counts": []}, "here.counts: expected an object, found a list"),
        ({"free": 1}, "here.free: expected an object, found an integer"),
        ({"mixed": [True]}, "here.mixed[0]: expected an integer or a string or null, found a bool"),
        ({"surprise": 1}, "here: unknown field 'surprise'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(
    change: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(Corrupt) as caught:
        Everything.from_json(STORED | change, "here")
    assert caught.value.message.startswith(problem)
    assert not isinstance(caught.value, InvalidPipeline)


@pytest.mark.parametrize("value", [None, 1, "x", [], True])
def test_a_value_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(Corrupt, match=r"^here: expected an object, found"):
        Everything.from_json(value, "here")


@pytest.mark.parametrize("name", sorted(STORED))
def test_every_field_is_required(name: str) -> None:
    cut = {key: value for key, value in STORED.items() if key != name}
    with pytest.raises(Corrupt, match=f"^here: missing field '{name}'"):
        Everything.from_json(cut, "here")


@pytest.mark.parametrize(
    "hint", [float, bytes, int | Inner, tuple[int, str], Mapping[int, str], list[int], Any]
)
def test_a_hint_without_a_stored_form_raises_a_type_error_at_the_first_use(hint: Any) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Odd(StoredValue):
        value: Any

    Odd.__annotations__["value"] = hint
    with pytest.raises(TypeError, match="no stored form"):
        Odd(value=1).to_json()


def test_a_list_of_one_value_raises_a_type_error_at_the_first_use() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Single(StoredValue):
        AS_LIST: ClassVar[bool] = True

        value: int

    with pytest.raises(TypeError, match="a list of one value, has no stored form"):
        Single(value=1).to_json()
