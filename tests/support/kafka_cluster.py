"""Three real brokers in one KRaft quorum, each in its own rack, for tests of leader changes."""

from __future__ import annotations

import base64
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import free_port

NODES = 3
HEAP_MB = 256


class KafkaCluster:
    """Brokers 1 to 3 in racks `rack-1` to `rack-3`; each can be killed, and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        ports = {node: (free_port(), free_port()) for node in range(1, NODES + 1)}
        voters = ",".join(f"{node}@127.0.0.1:{ports[node][1]}" for node in ports)
        cluster_id = "t" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        self.nodes: dict[int, KafkaBroker] = {}
        for node, (clients, controllers) in ports.items():
            state = folder / f"node-{node}"
            state.mkdir(parents=True)
            (state / "cluster.id").write_text(cluster_id)
            self.nodes[node] = KafkaBroker(
                state,
                port=clients,
                settings=_settings(node, voters, clients, controllers),
                heap_mb=HEAP_MB,
            )

    @property
    def bootstrap(self) -> str:
        """host:port of every broker, separated by commas."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> Self:
        try:
            # Concurrently: no broker answers before two of them vote.
            with ThreadPoolExecutor(NODES) as starting:
                list(starting.map(lambda node: node.start(), self.nodes.values()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.alive:
                node.process.kill()  # a clean stop would wait for the quorum, which is stopping, too
            node.stop()


def _settings(node: int, voters: str, clients: int, controllers: int) -> dict[str, str]:
    return {
        "node.id": str(node),
        "broker.rack": f"rack-{node}",
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{clients}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "offsets.topic.replication.factor": str(NODES),
        "transaction.state.log.replication.factor": str(NODES),
        "transaction.state.log.min.isr": "2",
        "replica.lag.time.max.ms": "3000",
        # The maximum lag of a follower's high watermark.
        "replica.fetch.wait.max.ms": "100",
    }
