"""Three clients, five codecs: what each wrote, read by us and by confluent-kafka's consumer, as a table.

    python tests/bench/golden_table.py

Starts a broker of its own in a temporary folder. Ends with 0 only if every record of every cell is identical.
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
    """Compare each client and codec, and print a line of it per feature."""
    different = 0
    print(f"{'client':<16}{'feature':<16}" + "".join(f"{codec:>12}" for codec in CODECS))
    with (
        tempfile.TemporaryDirectory(prefix="golden-") as folder,
        KafkaBroker(Path(folder)) as running,
    ):
        broker = TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))
        for client in CLIENTS:
            wanted = records_of(client)
            cells: dict[str, list[str]] = {one.feature: [] for one in wanted}
            for codec in CODECS:
                found = compare(broker, client, codec)
                same: Counter[str] = Counter()
                if len(found.ours) == len(found.consumed) == len(wanted):
                    for one, ours, judge in zip(wanted, found.ours, found.consumed, strict=True):
                        sent = (one.key, one.value, list(one.headers))
                        same[one.feature] += ours == judge and ours[2:] == sent
                for feature, count in Counter(one.feature for one in wanted).items():
                    cells[feature].append(f"{same[feature]}/{count}")
                    different += count - same[feature]
            for feature, counts in cells.items():
                print(f"{client:<16}{feature:<16}" + "".join(f"{cell:>12}" for cell in counts))
    print(f"{'identical' if not different else f'{different} records differ'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
