"""The files that deploy brokers: what they hold, and the commands that they run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("raftlog.service", "raftlog@.service")

Object = dict[str, Any]


def compose_file(name: str) -> Object:
    """The content of a Compose file."""
    found: Object = yaml.safe_load((ROOT / name).read_text())
    return found


def kubernetes_objects() -> dict[str, Object]:
    """The objects of ``deploy/kubernetes.yaml`` by their kinds."""
    found = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
    return {each["kind"]: each for each in found}


def unit(name: str) -> dict[str, str]:
    """The lines of a unit of systemd, each key once."""
    lines = (ROOT / "deploy" / "systemd" / name).read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if re.match(r"\w+=", line)]
    assert len(dict(pairs)) == len(pairs), "a key is there twice"
    return dict(pairs)


def image_instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments, continued lines joined."""
    text = re.sub(r"\\\n *", "", (ROOT / "Dockerfile").read_text())
    lines = (line for line in text.splitlines() if line and line[0] != "#")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def healthcheck_command() -> list[str]:
    """The program that checks the health of a container."""
    (found,) = (rest for word, rest in image_instructions() if word == "HEALTHCHECK")
    command: list[str] = json.loads(found.partition("CMD ")[2])
    return command


def raftlog_commands() -> Iterator[tuple[str, list[str]]]:
    """The arguments of ``raftlog`` that each file runs."""
    for name in UNITS:
        program, *arguments = shlex.split(unit(name)["ExecStart"])
        assert program == "/opt/raftlog/bin/raftlog"
        yield name, arguments
    for name in ("docker-compose.yml", "docker-compose.chaos.yml"):
        for service in compose_file(name)["services"].values():
            if "entrypoint" not in service and "raftlog" in service["image"]:
                yield name, [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in service["command"]]
    pod = kubernetes_objects()["StatefulSet"]["spec"]["template"]["spec"]
    yield from (("kubernetes.yaml", container["args"]) for container in pod["containers"])
    yield from (("Dockerfile", json.loads(rest)) for word, rest in image_instructions() if word == "CMD")
