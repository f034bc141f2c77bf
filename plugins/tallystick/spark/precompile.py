"""Compiles the decoders once per machine or image, so that no task waits for it: python -m tallystick.spark.precompile.

Safe to repeat: the code is cached, next to the sources or in NUMBA_CACHE_DIR (`tallystick.runtime.compiled`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec


def compile_decoders() -> None:
    """Compile the decoder of Kafka's batches and those of the formats; of JSON with a column of every type."""
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
    _compile_avro()
    _compile_csv()
    if find_spec("google.protobuf") is not None:
        from tallystick.engine.decode.protobuf import reader

        reader.warm()


def _compile_avro() -> None:
    import pyarrow as pa

    from tallystick.engine.decode.avro.rows import AvroContent
    from tallystick.pipeline import Column

    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9}
    fields = [{"name": "s", "type": "string"}, {"name": "d", "type": decimal}]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    columns = [Column("s", "string"), Column("d", "decimal(9,0)")]
    AvroContent(columns, schema).decode(pa.array([b"\x00\x00"], pa.binary()), prefix=0)


def _compile_csv() -> None:
    import pyarrow as pa

    from tallystick.engine.decode.csv.rows import CsvContent
    from tallystick.pipeline import Column, Csv

    CsvContent(Csv([Column("s", "string")])).decode(pa.array([b"x"], pa.binary()), prefix=0)


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
