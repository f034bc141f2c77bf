"""The CPU cost of decoding a record: tallystick's decoders, and other libraries on the same records.

    python -m bench.parts.decode [--records 20000] [--rounds 5] [--json]

The records are orders with three levels of structs and lists, as JSON, Avro and Protobuf, and flat events as JSON. All
columns are read unless the line states another number; `1 % dead`: every 100th record is broken. First the rows of
tallystick's decoders are compared with the records. Then each decoder is measured in turn: CPU time of this process with
all its threads, the best of the rounds. `x JSON` is the time in relation to that of tallystick for the same records as
JSON. Only tallystick returns a reason per broken record; the others raise at the first one, or skip it.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from pathlib import Path

from bench.parts.decode_contenders import DecodeContender, Read, contenders, declared
from bench.parts.decode_records import BenchRecords, batch, nested_and_flat
from tallystick.engine.decode.decoder import decoder_of

Line = dict[str, object]


def require_equal(records: BenchRecords) -> None:
    """Compare each row that tallystick decodes with its record. Exits at the first kind that differs."""
    decoded = decoder_of(declared(records, records.columns)).decode(batch(records.values))
    if decoded.rows.to_pylist(maps_as_pydicts="strict") != records.rows:
        raise SystemExit(f"{records.name}: the decoded rows differ from the records")


def cpu_s(read: Read, rows: int) -> float:
    """Return the CPU seconds of one read, of all threads."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    found = read()
    after = resource.getrusage(resource.RUSAGE_SELF)
    if found != rows:
        raise SystemExit(f"expected {rows} rows, found {found}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(
    records: BenchRecords, decoders: list[DecodeContender], rounds: int, folder: Path
) -> list[Line]:
    """Return a line per decoder: those that are not installed have no figures."""
    installed = [one for one in decoders if one.is_installed]
    reads = {one.name: one.open(records, folder) for one in installed}
    rows = len(records.values)
    best = dict.fromkeys(reads, float("inf"))
    for turn in range(rounds + 1):
        for name, read in reads.items():
            used = cpu_s(read, rows)
            # The first turn compiles kernels and fills caches.
            best[name] = min(best[name], used) if turn else best[name]
    lines: list[Line] = []
    for one in decoders:
        line: Line = {"records": records.name, "decoder": one.name}
        if one.name in best:
            seconds = best[one.name]
            line["us_per_record"] = round(seconds / rows * 1e6, 3)
            line["mb_per_s"] = round(records.bytes_each * rows / seconds / 1e6, 1)
        else:
            line["install"] = f"pip install {one.package}"
        lines.append(line)
    return lines


def with_ratios(lines: list[Line]) -> list[Line]:
    """Add the ratio of each line to tallystick's time for the same records as JSON."""
    json_us = {
        str(line["records"]).split()[0]: line["us_per_record"]
        for line in lines
        if line["decoder"] == "tallystick" and str(line["records"]).endswith("JSON")
    }
    for line in lines:
        if "us_per_record" in line:
            of_json = json_us[str(line["records"]).split()[0]]
            line["ratio_to_json"] = round(
                float(str(line["us_per_record"])) / float(str(of_json)), 2
            )
    return lines


def table(lines: list[Line]) -> str:
    """Return the lines as text of at most 100 columns."""
    rows = [f"{'records':<16}  {'decoder':<26}  {'us/record':>9}  {'MB/s':>6}  {'x JSON':>6}"]
    for line in lines:
        head = f"{line['records']:<16}  {line['decoder']:<26}"
        if "us_per_record" in line:
            figures = f"{line['us_per_record']:>9.2f}  {line['mb_per_s']:>6.0f}  {line['ratio_to_json']:>6.2f}"
        else:
            figures = f"not installed: {line['install']}"
        rows.append(f"{head}  {figures}")
    return "\n".join(rows)


def main() -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    kinds = nested_and_flat(arguments.records)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="bench-decode-") as folder:
        for kind, records in kinds.items():
            require_equal(records)
            lines += measured(records, contenders(kind), arguments.rounds, Path(folder))
    with_ratios(lines)
    sizes = {kind: round(records.bytes_each) for kind, records in kinds.items()}
    if arguments.json:
        print(json.dumps({"records": arguments.records, "bytes": sizes, "lines": lines}, indent=1))
        return 0
    shown = ", ".join(f"{kind} {size:,} B" for kind, size in sizes.items())
    print(f"{arguments.records:,} records of each kind: {shown}\n")
    print(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
