"""The corpus of the fuzzer: each value keeps its verdict, alone and in a batch of all.

A changed verdict is a change of what becomes a row: ROW_SEMANTICS. `make fuzz` adds to the corpus.
"""

from __future__ import annotations

import pytest

from support.fuzz import FORMATS, decode, fuzz, read_corpus, seeds


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_each_value_of_the_corpus_keeps_its_verdict(name: str) -> None:
    corpus = read_corpus(name)
    assert len(corpus) > 5
    decoder = FORMATS[name]()
    assert decode(decoder, [value for value, _ in corpus]) == [verdict for _, verdict in corpus]
    for value, verdict in corpus[::7]:
        assert decode(decoder, [value, None, value])[::2] == [verdict, verdict]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_values_that_the_fuzzer_begins_with_are_rows(name: str) -> None:
    assert {v.partition(":")[0] for v in decode(FORMATS[name](), seeds(name))} == {"row"}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_short_run_of_the_fuzzer_finds_no_defect(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("support.fuzz.write_corpus", lambda *_: None)
    monkeypatch.setattr("support.fuzz.BATCH", 500)
    lines = list(fuzz(name, seconds=0.2, seed=20_261_126))
    assert "kinds of verdicts" in lines[-1]
