"""Names and pages: each class name is defined once, and every page is in the index."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

PROJECT = Path(__file__).parents[3]
PRODUCT = PROJECT / "plugins" / "tallystick"


def test_no_class_name_is_defined_in_two_modules() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PRODUCT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(PRODUCT)))
    assert len(places) > 200, "the search must find the classes"
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_index_links_every_page_once_and_no_other() -> None:
    docs = PROJECT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {"index.md"}
    links = re.findall(r"\]\(([^)#]+)\)", (docs / "index.md").read_text())
    assert len(links) == len(set(links))
    assert set(links) == pages
