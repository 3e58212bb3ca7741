"""The pods of ``deploy/kubernetes.yaml`` as processes.

Each has an address of loopback, and folders for its volumes. The commands of ``docs/operations.md`` make the
Secret.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raftlog.__main__ import COMMAND
from raftlog.testing.waits import LIMIT_S
from tests.helpers.deployed import ROOT, Object, kubernetes_objects
from tests.helpers.real_cluster import call, eventually

pytestmark = pytest.mark.e2e

PAGE = (ROOT / "docs" / "operations.md").read_text()
ADDRESSES = {f"raftlog-{number}": f"127.77.1.{number}" for number in (1, 2, 3)}
SERVICE = "raftlog.default.svc"


class Pods:
    """Starts containers as processes: volumes are folders, and names of pods are addresses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pod: Object = kubernetes_objects()["StatefulSet"]["spec"]["template"]["spec"]

    def make_secret(self) -> None:
        """Run the commands of the page that make the files of the Secret."""
        lines = re.findall(r"^(?:raftlog|kubectl) .*", PAGE.partition("### Kubernetes")[2], re.MULTILINE)
        init = [
            re.sub(rf"(.*)\.{SERVICE}", lambda found: ADDRESSES[found[1]], word) for word in lines[0].split()
        ]
        subprocess.run([*COMMAND, *init[1:]], check=True, cwd=self._directory)
        (self._directory / "given").mkdir()
        for key, source in re.findall(r"--from-file=([^= ]+)=(\S+)", lines[1]):
            (self._directory / "given" / key).write_bytes((self._directory / source).read_bytes())

    def probe(self, name: str, kind: str) -> int:
        """The status that a probe of a pod gets."""
        get = self._pod["containers"][0][f"{kind}Probe"]["httpGet"]
        return call(f"http://{ADDRESSES[name]}:7070", "GET", get["path"]).status

    def prepare(self, name: str) -> None:
        """Run the container that comes first."""
        (self._directory / f"settings-{name}").mkdir(exist_ok=True)
        (first,) = self._pod["initContainers"]
        subprocess.run(self._texts(first["command"], name), check=True)

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Until the block ends, which is a clean stop."""
        (broker,) = self._pod["containers"]
        given = {each["name"]: each.get("value", "") for each in broker["env"]}
        variables = dict(zip(given, self._texts(list(given.values()), name), strict=True))
        environment = {**os.environ, **{key: text for key, text in variables.items() if text}}
        process = subprocess.Popen([*COMMAND, *self._texts(broker["args"], name)], env=environment)
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0

    def _texts(self, texts: list[str], name: str) -> list[str]:
        """The object with the values of its variables, and with folders for its volumes."""
        values = {"$(POD_NAME)": name, "$(POD_NAMESPACE)": "default", "/given": f"{self._directory}/given"}
        values |= {
            "/settings": f"{self._directory}/settings-{name}",
            "/var/lib/raftlog": f"{self._directory}/{name}",
        }
        pattern = re.compile("|".join(map(re.escape, values)))
        return [pattern.sub(lambda found: values[found[0]], text) for text in texts]


def test_pods_are_a_cluster_that_passes_its_probes(directory: Path) -> None:
    # requirement: X1
    pods = Pods(directory)
    pods.make_secret()
    for name in ADDRESSES:
        pods.prepare(name)
    with pods.running("raftlog-1"), pods.running("raftlog-2"), pods.running("raftlog-3"):
        for name in ADDRESSES:
            for kind in ("startup", "liveness", "readiness"):
                eventually(
                    lambda name=name, kind=kind: pods.probe(name, kind) == 200, what=f"{kind} of {name}"
                )
        host = {"Host": f"{SERVICE}:7070"}
        url = f"http://{ADDRESSES['raftlog-1']}:7070"
        eventually(  # by this request, or by one before it without an answer
            lambda: call(url, "POST", "/v1/topics", {"name": "a"}, headers=host).status in (201, 409),
            what="a topic",
        )
        made = eventually(
            lambda: call(url, "GET", "/v1/topics/a", headers=host).json.get("replication_factor"),
            what="the topic",
        )
        assert made == 3
    for name in ADDRESSES:
        assert any((directory / name / "data").iterdir())
