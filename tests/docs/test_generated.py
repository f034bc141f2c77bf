"""The generated pages are what `make docs` writes, and the codes that comments cite are in the protocol's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import api, protocol
from docs.generate.__main__ import PAGES
from docs.generate.crashes import CRASHES, cited


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_what_its_generator_returns(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run `make docs`"


def test_each_code_that_the_product_cites_is_in_a_table_and_each_crash_is_cited() -> None:
    crashes = {crash.code for crash in CRASHES}
    assert len(crashes) == len(CRASHES) == 15
    assert set(cited()) == crashes | set(protocol.invariant_texts())


def test_every_public_name_has_a_definition_and_a_section() -> None:
    page = api.page()
    for package in api.PUBLIC:
        for name in api.public_names(package):
            assert api.definition(package, name).name == name
            assert f"\n### {name}\n" in page
