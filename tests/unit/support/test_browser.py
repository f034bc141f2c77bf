"""Without a browser, the tests of buttons are skipped with the command that installs it, and fail in CI."""

from __future__ import annotations

import pytest

from support.airflow_pages import chromium


@pytest.mark.parametrize(
    ("ci", "ends"), [(None, pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_missing_browser_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, ci: str | None, ends: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CI", raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    with pytest.raises(ends, match="apt-get install --no-install-recommends chromium"):
        chromium()
