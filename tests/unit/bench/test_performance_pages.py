"""The published figures: the page is that of its bundle, the bundle is sealed, and no picture is older than it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.whole_job.bundle import read_bundle
from bench.whole_job.page import page

FOLDER = Path(__file__).parents[3] / "docs" / "performance"
BUNDLES = sorted(FOLDER.glob("*.json"))
PICTURES = {
    "backfill": ("cost",),
    "formats": ("cost", "per-million"),
    "growth": ("records", "others"),
    "others": ("cost", "per-million"),
    "start": ("processes", "loading"),
    "whole-job": ("cost", "per-million"),
}


def test_there_is_a_bundle_of_each_benchmark() -> None:
    assert [bundle.stem for bundle in BUNDLES] == list(PICTURES)


@pytest.mark.parametrize("file", BUNDLES, ids=lambda file: file.stem)
def test_the_page_and_the_pictures_are_those_of_the_bundle(file: Path) -> None:
    bundle = read_bundle(file)
    assert bundle["complete"]
    assert all(run["ok"] for run in bundle["runs"])
    assert not bundle["machine"]["changed"], "the code that was measured is in no commit"
    assert file.with_suffix(".md").read_text() == page(bundle, file.stem)
    for picture in PICTURES[file.stem]:
        drawn = (FOLDER / f"{file.stem}-{picture}.svg").read_text()
        assert f"bundle sha256 {bundle['sha256']}" in drawn
