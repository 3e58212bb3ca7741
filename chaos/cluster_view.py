"""Views a cluster through its HTTP API: brokers, metrics, leaders. The brokers may run on any machine."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from chaos.http_get import http_get
from raftlog.testing.waits import LIMIT_S, states
from raftlog.wire import health

POLL_S = 0.05  # each look costs a broker and the caller CPU
ANSWER_S = 10.0  # timeout of one attempt of many


class ClusterFailed(Exception):
    """A broker did not become ready or did not end in time. The message has the end of its log if
    possible.
    """


class ClusterView(ABC):
    """A view of any cluster over HTTP."""

    def __init__(self, urls: Mapping[int, str]) -> None:
        self._urls = dict(urls)

    @property
    def brokers(self) -> list[int]:
        """Ids of all brokers, running or not."""
        return sorted(self._urls)

    @property
    @abstractmethod
    def running(self) -> list[int]:
        """Ids of the running brokers."""

    @property
    def urls(self) -> list[str]:
        """HTTP addresses of all brokers, in the order of their ids."""
        return [self._urls[broker] for broker in self.brokers]

    @property
    def bootstrap(self) -> str:
        """HTTP addresses of all brokers, as one text that clients accept."""
        return ",".join(self.urls)

    def url(self, broker: int) -> str:
        """HTTP address of one broker."""
        return self._urls[broker]

    def get(self, path: str, *, broker: int | None = None, answer_s: float = LIMIT_S) -> dict[str, object]:
        """Return the JSON response of a broker (default: the first running broker). Raises ``OSError``."""
        url = self._urls[broker if broker is not None else self.running[0]]
        found: dict[str, object] = json.loads(http_get(url + path, answer_s)[0])
        return found

    def metric(self, name: str, *, broker: int) -> float:
        """Return the value of a metric of one broker, summed over its labels. Raises ``OSError``."""
        return self.metrics(name, broker=broker)[0]

    def metrics(self, *names: str, broker: int) -> list[float]:
        """Return the values of several metrics from one response, each summed over its labels. A name may
        include labels.
        """
        lines = http_get(f"{self._urls[broker]}/metrics", LIMIT_S)[0].decode().splitlines()
        found = []
        for name in names:
            begins = (f"{name} ", f"{name}{{")
            found.append(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(begins)))
        return found

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition; waits for an election. Raises ``ClusterFailed``."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                items = self.get(f"/v1/topics/{topic}/partitions", answer_s=ANSWER_S)["items"]
            except OSError:
                items = []
            if isinstance(items, list):
                for item in items:
                    if item["partition"] == partition and item["leader"] in self.running:
                        return int(item["leader"])
            time.sleep(POLL_S)
        raise ClusterFailed(f"{topic}/{partition} has no leader after {LIMIT_S:g} s\n{states()}")

    def is_ready(self, broker: int) -> bool:
        """True if the broker reports that it can serve."""
        return self._agrees(broker, health.READY.path)

    def is_alive(self, broker: int) -> bool:
        """True if the broker responds, whether it can serve or not."""
        return self._agrees(broker, health.LIVE.path)

    def _agrees(self, broker: int, path: str) -> bool:
        try:
            http_get(f"{self._urls[broker]}{path}", ANSWER_S)
        except OSError:
            return False
        return True
