"""A driver's pod as Spark's own spark-submit creates it, in a simulated API server: no server of Kubernetes is here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from support.kubernetes_api import SimulatedKubernetes
from support.rest_server import serving
from tallystick.airflow.clusters.kubernetes import KubernetesCluster
from tallystick.airflow.clusters.port import DriverRequest
from tallystick.airflow.environment import own_spark_submit

ATTEMPT = "0123456789abcdef0123456789abcdef"

pytestmark = pytest.mark.timeout(900)


def test_spark_submit_creates_the_pod_that_the_cluster_finds_reads_and_deletes(
    tmp_path: Path,
) -> None:
    binary = own_spark_submit()
    assert binary is not None
    token = tmp_path / "token"
    token.write_text("canary-token")
    request = DriverRequest(
        name=f"tallystick-flights-{ATTEMPT}",
        job="/jobs/flights.py",
        arguments=("--attempt", ATTEMPT),
        conf={
            "spark.kubernetes.container.image": "registry.example.org/tallystick:1",
            "spark.executorEnv.AWS_REGION": "eu",
            "spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID": "s3:id",
        },
    )
    simulated = SimulatedKubernetes()
    with serving(simulated.server):
        there = KubernetesCluster(
            simulated.server.url,
            master=f"k8s://{simulated.server.url}",
            binary=binary,
            namespace="replay",
            token_file=str(token),
            worker={**os.environ, "HOME": str(tmp_path)},
        )
        driver = there.submit(request)
        [pod] = simulated.pods.values()
        assert driver == f"replay/tallystick-{ATTEMPT}/{pod['metadata']['uid']}"
        assert asyncio.run(there.state(driver)).state == "waiting"
        there.kill(driver)
        assert simulated.pods == {}
    assert pod["metadata"]["labels"]["tallystick-attempt"] == ATTEMPT
    assert pod["metadata"]["labels"]["spark-role"] == "driver"
    assert pod["spec"]["restartPolicy"] == "Never"
    [container] = pod["spec"]["containers"]
    assert "local:///jobs/flights.py" in container["args"]
    assert container["args"][-2:] == ["--attempt", ATTEMPT]
    variables = {one["name"]: one for one in container["env"]}
    assert variables["AWS_REGION"]["value"] == "eu"
    assert variables["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"] == {
        "key": "id",
        "name": "s3",
    }
    assert set(simulated.server.headers) == {"Bearer canary-token"}
    assert "canary" not in str([pod, simulated.others])
