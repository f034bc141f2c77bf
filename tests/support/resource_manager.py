"""A simulated ResourceManager of YARN: the REST API's answers are those of Hadoop 3.5, recorded from a real one.

`tests/spark/test_yarn_drivers.py` compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from support.rest_server import Reply, RestServer

STANDBY = b"Can not find any active RM. Will retry in next 5 seconds.\n"
_PACKAGE = "org.apache.hadoop.yarn.webapp."
_ENDED = ("FINISHED", "FAILED", "KILLED")


@dataclass
class SimulatedResourceManager:
    """The ResourceManager's applications by id."""

    apps: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = count(1)
        self.server = RestServer(self.answer)

    def accept(self, tags: str, name: str = "n") -> str:
        """Accept an application, as from spark-submit."""
        key = f"application_1795688175304_{next(self._numbers):04d}"
        self.apps[key] = {
            "id": key,
            "name": name,
            "state": "ACCEPTED",
            "finalStatus": "UNDEFINED",
            "diagnostics": "",
            "applicationTags": tags,
        }
        return key

    def end(self, key: str, state: str, final: str, diagnostics: str = "") -> None:
        """Let an application end."""
        self.apps[key] |= {"state": state, "finalStatus": final, "diagnostics": diagnostics}

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
        """Return the answer to a request."""
        if path == "/simulated":
            conf = body["conf"]
            return 200, {"id": self.accept(conf["spark.yarn.tags"])}
        words = path.removeprefix("/ws/v1/cluster/apps").strip("/").split("/")
        if words == [""]:
            wanted = query["applicationTags"].lower()
            found = [a for a in self.apps.values() if wanted in a["applicationTags"].split(",")]
            return 200, {"apps": {"app": found} if found else {}}
        app = self.apps.get(words[0])
        if app is None:
            return 404, _error("NotFoundException", f"app with id: {words[0]} not found")
        if method == "PUT":
            if app["state"] in _ENDED:
                return 200, {"state": app["state"]}
            self.end(words[0], body["state"], body["state"], "killed by user dr.who")
            return 202, {"state": "KILLING"}
        return 200, {"app": app}


def _error(exception: str, message: str) -> dict[str, Any]:
    fields = {"exception": exception, "message": message, "javaClassName": _PACKAGE + exception}
    return {"RemoteException": fields}
