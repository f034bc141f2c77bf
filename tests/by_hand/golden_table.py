"""Three clients and five codecs: their records, read by tallystick and by confluent-kafka's consumer, as a table.

    python tests/by_hand/golden_table.py

Starts its own broker in a temporary folder. Exits with 0 only if every record of every cell is identical.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka.admin import AdminClient

from support.brokers import TestBroker
from support.golden_topics import CLIENTS, CODECS, compare, records_of
from tallystick_devstack.kafka import KafkaBroker


def main() -> int:
    """Compare each client and codec, and print one line per client and feature."""
    different = 0
    print(f"{'client':<16}{'feature':<16}" + "".join(f"{codec:>12}" for codec in CODECS))
    with (
        tempfile.TemporaryDirectory(prefix="golden-") as folder,
        KafkaBroker(Path(folder)) as running,
    ):
        broker = TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))
        for client in CLIENTS:
            records = records_of(client)
            cells: dict[str, list[str]] = {record.feature: [] for record in records}
            for codec in CODECS:
                read = compare(broker, client, codec)
                same: Counter[str] = Counter()
                if len(read.ours) == len(read.consumed) == len(records):
                    for record, ours, consumed in zip(
                        records, read.ours, read.consumed, strict=True
                    ):
                        sent = (record.key, record.value, list(record.headers))
                        same[record.feature] += ours == consumed and ours[2:] == sent
                for feature, count in Counter(record.feature for record in records).items():
                    cells[feature].append(f"{same[feature]}/{count}")
                    different += count - same[feature]
            for feature, counts in cells.items():
                print(f"{client:<16}{feature:<16}" + "".join(f"{cell:>12}" for cell in counts))
    print(f"{'identical' if not different else f'{different} records differ'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
