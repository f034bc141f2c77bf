"""docker-compose.yml, Dockerfile, .env.example and their page as values, and checks of them.

The tests run without a Docker engine. So each check compares what the files name with the code, the lock file or the
installed packages, and returns a message for each difference.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAGE = "docs/how-to/run-with-docker-compose.md"

_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Z0-9_]+)(:?[-?])?([^}]*)\}")
_SECRET_NAME = re.compile(r"PASSWORD$|SECRET|FERNET|SQL_ALCHEMY_CONN$|ROOT_SECRET")
_SERVICE_KEYS: dict[str, type] = {
    **{"image": str, "build": str, "restart": str, "stop_grace_period": str},
    **{"environment": dict, "healthcheck": dict, "depends_on": dict, "deploy": dict},
    "logging": dict,
    "working_dir": str,
    **{"command": list, "ports": list, "volumes": list, "security_opt": list},
}
_HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period", "start_interval"}
_CONDITIONS = ("service_healthy", "service_completed_successfully")


class _Loader(yaml.SafeLoader):
    """YAML as Compose reads it: a duplicate key in a mapping is an error; the last one does not win."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.YAMLError(f"duplicate key in {sorted(keys)}")
        return node


@dataclass(frozen=True)
class Files:
    """The texts of the files, unchanged or changed by a test."""

    compose: str
    dockerfile: str
    example: str
    ignore: str
    page: str
    readme: str

    @staticmethod
    def read() -> Files:
        names = (
            "docker-compose.yml",
            "Dockerfile",
            ".env.example",
            ".dockerignore",
            PAGE,
            "README.md",
        )
        return Files(*((ROOT / name).read_text(encoding="utf-8") for name in names))

    @cached_property
    def document(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.load(self.compose, Loader=_Loader)
        return loaded

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.document["services"]
        return found

    def variables(self) -> Iterator[tuple[str, str, str]]:
        """Yield (service, variable, value) of every container's environment."""
        for name, service in self.services.items():
            for variable, value in service.get("environment", {}).items():
                yield name, variable, value

    def environment(self, service: str) -> dict[str, str]:
        found: dict[str, str] = self.services[service].get("environment", {})
        return found

    def example_values(self) -> dict[str, str]:
        lines = (line for line in self.example.splitlines() if line and not line.startswith("#"))
        return dict(line.split("=", 1) for line in lines)

    def instructions(self) -> list[tuple[str, str]]:
        """Return (instruction, words) of the Dockerfile, with continued lines joined and without comments."""
        lines = [line for line in self.dockerfile.splitlines() if not line.startswith("#")]
        joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
        return [(i, w) for i, _, w in (line.partition(" ") for line in joined.splitlines()) if i]

    def documented_commands(self) -> list[list[str]]:
        """Return the commands of the page, and those of the README for Docker: indented lines, split into words."""
        lines = re.findall(r"^    (\S.*)$", self.page, re.MULTILINE)
        lines += re.findall(r"^    (docker .*|make \.env.*)$", self.readme, re.MULTILINE)
        return [shlex.split(line, comments=True) for line in lines]


def shape(files: Files) -> list[str]:
    """Check the part of the Compose specification that is used: known keys, right types, strings instead of numbers."""
    unknown = {k for k in files.document if not k.startswith("x-")} - {
        "name",
        "services",
        "volumes",
    }
    problems = [f"top level: {key}" for key in unknown]
    for name, service in files.services.items():
        problems += [f"{name}: unknown key {key}" for key in service.keys() - _SERVICE_KEYS.keys()]
        bounds = service.get("logging", {}).get("options", {}).keys()
        problems += [f"{name}: its log has no {key}" for key in {"max-size", "max-file"} - bounds]
        problems += [
            f"{name}: {key} is a {type(service[key]).__name__}"
            for key, wanted in _SERVICE_KEYS.items()
            if key in service and not isinstance(service[key], wanted)
        ]
        words = [*service.get("command", []), *service.get("environment", {}).values()]
        problems += [
            f"{name}: {word!r} is not a string" for word in words if not isinstance(word, str)
        ]
        problems += [
            f"{name}: healthcheck {k}" for k in service.get("healthcheck", {}).keys() - _HEALTH_KEYS
        ]
        if service.get("restart") not in ("no", "unless-stopped"):
            problems.append(f"{name}: restart is {service.get('restart')!r}")
    return problems


def ports(files: Files) -> list[str]:
    """Check that every published port is bound to 127.0.0.1."""
    published = [(n, p) for n, s in files.services.items() for p in s.get("ports", [])]
    wanted = re.compile(r"127\.0\.0\.1:\$\{[A-Z0-9_]+:-\d+\}:\d+")
    return [f"{n}: {p}" for n, p in published if not wanted.fullmatch(p)] or (
        [] if published else ["none"]
    )


def watched(files: Files) -> list[str]:
    """Check that each service has a health check, or ends and another waits for its end; and that awaited ones exist."""
    problems, awaited = [], set()
    for name, service in files.services.items():
        for other, how in service.get("depends_on", {}).items():
            condition = how.get("condition")
            if other not in files.services or condition not in _CONDITIONS:
                problems.append(f"{name} waits for {other}: {condition}")
                continue
            ends = files.services[other]["restart"] == "no"
            if (condition == "service_completed_successfully") != ends:
                problems.append(f"{name} waits for {other} to be {condition}")
            if ends:
                awaited.add(other)
    for name, service in files.services.items():
        if service["restart"] == "no":
            # `up --wait` treats the end of a service as a failure unless another one waits for it.
            problems += [] if name in awaited else [f"no service waits for {name}"]
        elif service.get("healthcheck", {}).get("test", [""])[0] not in ("CMD", "CMD-SHELL"):
            problems.append(f"{name} has no health check")
    return problems


def paths(files: Files) -> list[str]:
    """Check that mounted or copied paths exist in git and in the build's context, and that named volumes are declared."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    problems, named = [], set()
    for name, service in files.services.items():
        for volume in service.get("volumes", []):
            source, _, target = volume.partition(":")
            if not source.startswith("."):
                named.add(source)
            elif not target.endswith(":ro"):
                problems.append(f"{name} may write to {source}")
            elif not _in_project(source.removeprefix("./"), tracked):
                problems.append(f"{name} mounts {source}, which does not exist")
    if named != set(files.document["volumes"]):
        problems.append(f"volumes: {named ^ set(files.document['volumes'])}")
    admitted = {line[1:] for line in files.ignore.splitlines() if line.startswith("!")}
    for words in (w.split() for i, w in files.instructions() if i == "COPY" and "--from" not in w):
        for source in (w for w in words[:-1] if not w.startswith("--")):
            if not _in_project(source, tracked):
                problems.append(f"the Dockerfile copies {source}, which does not exist")
            if source.split("/")[0] not in admitted:
                problems.append(f".dockerignore excludes {source} from the build")
    if "*" not in files.ignore.splitlines():
        problems.append(".dockerignore admits everything")
    return problems


def _in_project(path: str, tracked: list[str]) -> bool:
    return any(file == path or file.startswith(f"{path}/") for file in tracked)


def example(files: Files) -> list[str]:
    """Check that .env.example has exactly the used variables: secrets empty and required, others with their default."""
    values = files.example_values()
    used = list(_REFERENCE.findall(files.compose))
    problems = [
        f"{n} is in one of the two files only" for n in values.keys() ^ {n for n, _, _ in used}
    ]
    for name, operator, rest in used:
        if operator == ":?" and values.get(name) != "":
            problems.append(f"{name} is required, and {values.get(name)!r} in .env.example")
        elif operator == ":-" and values.get(name) != rest:
            problems.append(f"{name}: default {rest!r}, {values.get(name)!r} in .env.example")
        elif operator not in (":?", ":-"):
            problems.append(f"{name} may be missing without an error")
    blocks = files.example.strip().split("\n\n")
    problems += [f"no comment above {block!r}" for block in blocks if not block.startswith("#")]
    lines = [line for block in blocks for line in block.splitlines()]
    return problems + [f"{line!r}" for line in lines if not re.match(r"# |[A-Z0-9_]+=", line)]


def secrets(files: Files) -> list[str]:
    """Check that secrets are required references, not values, and that no command contains one, which `ps` would show."""
    problems = []
    for service, name, value in files.variables():
        if _SECRET_NAME.search(name) and not re.search(r"\$\{[A-Z0-9_]+:\?[^}]+\}", value):
            problems.append(f"{service}: {name} is {value!r}")
    for name, service in files.services.items():
        words = [*service.get("command", []), *service.get("healthcheck", {}).get("test", [])]
        problems += [
            f"{name}: a command contains {word!r}" for word in words if _REFERENCE.search(word)
        ]
    for instruction, words in files.instructions():
        if instruction in ("ENV", "ARG") and re.search(
            r"PASSWORD|SECRET|TOKEN|KEY", words, re.IGNORECASE
        ):
            problems.append(f"Dockerfile: {instruction} {words}")
    return problems


def addresses(files: Files) -> list[str]:
    """Check that each host:port in settings and commands is a service of this file and a port on which it listens."""
    listens = {"kafka": {9092, 9093}, "s3": {7070}, "postgres": {5432}, "spark-master": {7077}}
    listens["airflow-api-server"] = {8080}
    texts = [(service, value) for service, _, value in files.variables()]
    texts += [(n, word) for n, s in files.services.items() for word in s.get("command", [])]
    problems = []
    for service, text in texts:
        for host, port in re.findall(r"(?:://|@|^|\")([a-z][a-z0-9-]+):(\d+)(?![\d.])", text):
            if int(port) not in listens.get(host, set()):
                problems.append(f"{service}: nothing listens on {host}:{port}")
    own = {n: re.findall(r"(?::|--port )(\d+)\b", json.dumps(s)) for n, s in files.services.items()}
    for name in ("kafka", "s3", "spark-master"):
        problems += [
            f"{name} does not listen on {p}" for p in map(str, listens[name]) if p not in own[name]
        ]
    return problems
