"""A simulated API server of Kubernetes: pods and what spark-submit creates with them, of one moment, without a node.

Its answers have the form of apimachinery's `metav1.Status`, as of Kubernetes 1.34. No real server compares them.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from support.rest_server import Reply, RestServer

Pod = dict[str, Any]


@dataclass
class SimulatedKubernetes:
    """The pods by name in each namespace, and the other objects that were sent, by their path."""

    pods: dict[tuple[str, str], Pod] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = count(1)
        self.server = RestServer(self.answer)

    def create(self, namespace: str, pod: Pod) -> Reply:
        """Create a pod, as the API server does."""
        name = pod["metadata"]["name"]
        if (namespace, name) in self.pods:
            return _failure(409, "AlreadyExists", f'pods "{name}" already exists', name)
        made = deepcopy(pod)
        made.setdefault("apiVersion", "v1")
        made.setdefault("kind", "Pod")
        made["metadata"] |= {"namespace": namespace, "uid": f"uid-{next(self._numbers)}"}
        made["metadata"] |= {"resourceVersion": "1"}
        made["status"] = {"phase": "Pending"}
        self.pods[namespace, name] = made
        return 201, made

    def set(self, phase: str, **status: Any) -> None:
        """Give the only pod a status."""
        [pod] = self.pods.values()
        pod["status"] = {"phase": phase, **status}

    def replace(self) -> None:
        """Replace the only pod by another one of the same name."""
        [(key, pod)] = self.pods.items()
        del self.pods[key]
        self.create(key[0], pod)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
        """Return the answer to a request."""
        if path == "/simulated":
            return self._submitted(body["conf"])
        words = path.removeprefix("/api/v1/namespaces/").split("/")
        if len(words) < 2 or words[1] != "pods":
            return self._other(method, path, body)
        namespace, name = words[0], "".join(words[2:3])
        if not name and method == "POST":
            return self.create(namespace, body)
        if not name:
            return 200, {"kind": "PodList", "items": self._selected(namespace, query)}
        pod = self.pods.get((namespace, name))
        if pod is None:
            return _failure(404, "NotFound", f'pods "{name}" not found', name)
        if method == "DELETE":
            return self._delete(namespace, name, body or {})
        return 200, pod

    def _submitted(self, conf: dict[str, str]) -> Reply:
        prefix = "spark.kubernetes.driver.label."
        labels = {k.removeprefix(prefix): v for k, v in conf.items() if k.startswith(prefix)}
        metadata = {
            "name": conf["spark.kubernetes.driver.pod.name"],
            "labels": {**labels, "spark-role": "driver"},
        }
        made = self.create(conf["spark.kubernetes.namespace"], {"metadata": metadata})[1]
        return 200, {"id": made["metadata"]["name"]}

    def _selected(self, namespace: str, query: dict[str, str]) -> list[Pod]:
        wanted = dict(one.split("=") for one in query.get("labelSelector", "").split(",") if one)
        return [
            pod
            for (of, _), pod in self.pods.items()
            if of == namespace and wanted.items() <= pod["metadata"].get("labels", {}).items()
        ]

    def _delete(self, namespace: str, name: str, options: dict[str, Any]) -> Reply:
        uid = self.pods[namespace, name]["metadata"]["uid"]
        wanted = (options.get("preconditions") or {}).get("uid", uid)
        if wanted != uid:
            text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            return _failure(
                409, "Conflict", f'Operation cannot be fulfilled on pods "{name}": {text}', name
            )
        return 200, self.pods.pop((namespace, name))

    def _other(self, method: str, path: str, body: Any) -> Reply:
        if method in ("POST", "PUT", "PATCH"):
            self.others[path] = body
            if isinstance(body, dict):
                return 200, body
        return 404, {"kind": "Status", "status": "Failure", "message": "not found", "code": 404}


def _failure(code: int, reason: str, message: str, name: str) -> Reply:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": {"name": name, "kind": "pods"},
        "code": code,
    }
