"""The seconds that Python's modules take to load, by library, from the output of PYTHONPROFILEIMPORTTIME."""

from __future__ import annotations

import re

PROFILE = {"PYTHONPROFILEIMPORTTIME": "1"}
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")
STANDARD = "standard library"
LIBRARIES = {
    "tallystick": ("tallystick", "bench", "job", "examples"),
    "client of Kafka": ("kafka",),
    "client of S3": ("boto3", "botocore", "s3transfer", "urllib3", "jmespath", "dateutil", "six"),
    "PyIceberg": (
        *("pyiceberg", "pydantic", "pydantic_core", "annotated_types", "typing_inspection"),
        *(
            "pyparsing",
            "strictyaml",
            "fsspec",
            "mmh3",
            "cachetools",
            "zstandard",
            "rich",
            "pyroaring",
        ),
    ),
    "PyArrow and numpy": ("pyarrow", "numpy", "pandas", "pytz"),
    "compiled loops": ("llvmlite", "numba"),
    "PySpark": ("pyspark", "py4j"),
}
_LIBRARY_OF = {package: library for library, packages in LIBRARIES.items() for package in packages}


def import_seconds(output: str) -> dict[str, float]:
    """Return the seconds by library, of all processes that wrote to `output`; a module's time is without its imports."""
    found: dict[str, float] = {}
    for line in _LINE.finditer(output):
        package = line[2].partition(".")[0]
        library = _LIBRARY_OF.get(package, STANDARD)
        found[library] = found.get(library, 0.0) + int(line[1]) / 1e6
    return found
