"""The file of tokens: what it grants, what it refuses, and that a change counts at the next request."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tallystick.catalog.tokens import TokenFile, new_token, parse_tokens, token_line
from tallystick.errors import SettingsError

GOOD = token_line("a", ["flights", "orders"])


def replace_text(path: Path, text: str) -> None:
    """Replace a file as an editor does, so that it is another file."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


def test_a_line_has_the_digest_and_the_lakes_and_not_the_token() -> None:
    token = new_token()
    line = token_line(token, ["flights", "orders"])
    assert token not in line
    (grant,) = parse_tokens(f"# a comment\n\n{line}  # the notebooks\n", where="file")
    assert grant.digest == hashlib.sha256(token.encode()).digest()
    assert [grant.may_see(name) for name in ("flights", "orders", "other")] == [True, True, False]
    (every,) = parse_tokens(token_line(token, []), where="file")
    assert every.may_see("other")


def test_two_new_tokens_differ() -> None:
    assert new_token() != new_token()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a token, found none"),
        ("# only a comment", "expected a token, found none"),
        ("hunter2 flights", "file, line 1: expected a SHA-256"),
        (f"{GOOD}\n{'0' * 64}", "file, line 2: expected a SHA-256"),
        (f"{'0' * 64} flights orders", "line 1: expected a SHA-256"),
        (f"{'0' * 64} Flights", "expected the name of a lake"),
        (f"{'0' * 64} flights,", "expected the name of a lake"),
        (f"{GOOD}\n{GOOD}", "line 2: expected each token once"),
    ],
)
def test_a_file_with_a_mistake_is_refused_without_its_content(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        parse_tokens(text, where="file")
    assert "hunter2" not in str(caught.value)


def test_only_a_token_of_the_file_is_granted(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{token_line('first', ['flights'])}\n{token_line('second', [])}\n")
    tokens = TokenFile(file)
    first, second = tokens.grant_of("first"), tokens.grant_of("second")
    assert first is not None
    assert second is not None
    assert (first.lakes, second.lakes) == (frozenset({"flights"}), None)
    for other in ("", "First", "first ", token_line("first", []).split()[0], "first" * 1000):
        assert tokens.grant_of(other) is None, other


def test_a_token_that_is_taken_out_of_the_file_ends_at_once(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{token_line('first', [])}\n{token_line('second', [])}\n")
    tokens = TokenFile(file)
    assert tokens.grant_of("first") is not None
    replace_text(file, f"{token_line('second', [])}\n")
    assert tokens.grant_of("first") is None
    assert tokens.grant_of("second") is not None


@pytest.mark.parametrize("broken", ["hunter2", "\udcff", None])
def test_no_token_is_accepted_while_the_file_cannot_be_used(
    tmp_path: Path, broken: str | None
) -> None:
    file = tmp_path / "tokens"
    file.write_text(token_line("first", []))
    tokens = TokenFile(file)
    if broken is None:
        file.unlink()
    else:
        file.write_bytes(broken.encode("utf-8", "surrogateescape"))
    for _ in range(2):
        with pytest.raises(SettingsError, match="--tokens"):
            tokens.grant_of("first")
    replace_text(file, token_line("first", []))
    assert tokens.grant_of("first") is not None


def test_a_file_that_does_not_exist_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        TokenFile(tmp_path / "tokens")
