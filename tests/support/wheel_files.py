"""The files of the wheel: `python tests/support/wheel_files.py FILE.whl` compares a built one with the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

PRODUCT = Path(__file__).parents[2] / "plugins" / "tallystick"


def expected_files() -> list[str]:
    """Return the names in the wheel, without its metadata: the files of the package that git has, and new ones."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."],
        cwd=PRODUCT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return sorted(f"tallystick/{name}" for name in listed if (PRODUCT / name).is_file())


def differences(names: Iterable[str]) -> list[str]:
    """Return what the wheel has too many or too few, one line each."""
    found = {name for name in names if ".dist-info/" not in name}
    expected = set(expected_files())
    return [f"wheel: unexpected {name}" for name in sorted(found - expected)] + [
        f"wheel: missing {name}" for name in sorted(expected - found)
    ]


if __name__ == "__main__":
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        lines = differences(wheel.namelist())
    print("\n".join(lines) or f"{sys.argv[1]}: the files of the package")
    sys.exit(1 if lines else 0)
