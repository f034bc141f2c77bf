"""Writes the generated pages: `make docs`. A test compares them with what their generators return."""

from __future__ import annotations

from pathlib import Path

from docs.generate import api, protocol

REFERENCE = Path(__file__).parents[1] / "reference"
PAGES = {REFERENCE / "api.md": api.page, REFERENCE / "protocol.md": protocol.page}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page())
