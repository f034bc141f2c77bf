"""Compiles the decoders once per machine or image, so that no task waits for it: python -m tallystick.spark.precompile.

Safe to repeat: numba caches the compiled functions, next to the sources or in NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def compile_decoders() -> None:
    """Compile the decoder of Kafka's batches and the decoder of JSON records, with a column of every type."""
    import pyarrow as pa

    from tallystick.engine.decode.json.rows import JsonDecoder
    from tallystick.kafka import decode
    from tallystick.pipeline import Column, Json

    decode.warm()
    every_type = [
        Column(f"c{i}", kind, required=False)
        for i, kind in enumerate(
            (
                *("boolean", "int", "long", "float", "double", "string", "date", "timestamptz"),
                *("time", "uuid", "list<string>", "map<string, long>"),
            )
        )
    ]
    every_type += [Column("text", "string", required=False, parse="json"), Column("rest", "string")]
    decoder = JsonDecoder(Json(every_type, other_fields="rest"))
    decoder.decode_values(pa.array([b"{}"], pa.binary()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the decoders and return 0. The only option of the command is --help."""
    parser = argparse.ArgumentParser(prog="python -m tallystick.spark.precompile")
    parser.description = "Compile tallystick's decoders once, so that no task waits for it."
    parser.parse_args(arguments)
    compile_decoders()
    sys.stderr.write("decoders: compiled\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
