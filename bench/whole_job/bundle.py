"""The sealed bundle: all of a benchmark in one JSON file, with the SHA-256 of its canonical bytes.

    python -m bench.whole_job.bundle FILE    # computes the digest again, prints the table; exit code 1 if it differs

The digest shows that no figure was changed after the run. It is no signature: who can run the benchmark can seal a file.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
_DIGEST = "sha256"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with its format and its digest."""
    body = {"format": FORMAT, **content}
    return {**body, _DIGEST: digest_of(body)}


def digest_of(bundle: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical bytes: JSON without the digest, names sorted, no spaces, ASCII."""
    body = {name: value for name, value in bundle.items() if name != _DIGEST}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def write_bundle(path: Path, bundle: Mapping[str, Any]) -> None:
    """Write a sealed bundle. Safe to repeat: the file is replaced by a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.part")
    half.write_text(json.dumps(bundle, indent=1, sort_keys=True, allow_nan=False) + "\n")
    half.replace(path)


def read_bundle(path: Path) -> dict[str, Any]:
    """Return the bundle of a file. Raises ValueError if its digest or its format is not the expected one."""
    bundle: dict[str, Any] = json.loads(path.read_text())
    if bundle.get("format") != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}, found {bundle.get('format')!r}")
    if (found := digest_of(bundle)) != bundle.get(_DIGEST):
        raise ValueError(f"{path}: expected digest {bundle.get(_DIGEST)}, found {found}")
    return bundle


def main(path: Path) -> int:
    """Check a bundle and print its table; return the exit code."""
    from bench.whole_job.backfill import report as backfill_report
    from bench.whole_job.formats import report as formats_report
    from bench.whole_job.growth import report as growth_report
    from bench.whole_job.report import text_report
    from bench.whole_job.start import report as start_report

    try:
        bundle = read_bundle(path)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    reports = {
        backfill_report.WHAT: backfill_report.text_report,
        formats_report.WHAT: formats_report.text_report,
        growth_report.WHAT: growth_report.text_report,
        start_report.WHAT: start_report.text_report,
    }
    print(reports.get(bundle.get("what", ""), text_report)(bundle))
    print(f"\nthe digest is right: {bundle[_DIGEST]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
