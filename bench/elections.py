"""Counts needless elections in a cluster of three brokers, first while it is idle, then under full load."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.errors import RaftlogError
from raftlog.wire import partitions

PARTITIONS: Final = 12
PRODUCERS: Final = 4
SETTLE_S: Final = 5.0
_TOPIC: Final = "elections"
_VALUE: Final = b"x" * 1024


def spurious_elections(idle_s: float, busy_s: float) -> tuple[int, int, int]:
    """Count elections of an idle and of a busy cluster, and the records that the busy cluster stores."""
    with (
        tempfile.TemporaryDirectory(prefix="raftlog-elections-") as name,
        Cluster(Path(name), brokers=3) as cluster,
        Client(cluster.bootstrap) as client,
    ):
        client.topics.create(_TOPIC, partitions=PARTITIONS, replication_factor=3)
        time.sleep(SETTLE_S)
        at_first = _terms(cluster)
        time.sleep(idle_s)
        idle = _terms(cluster)
        stored = _produce(cluster.bootstrap, busy_s)
        return idle - at_first, _terms(cluster) - idle, stored


def _terms(cluster: Cluster) -> int:
    """The sum of the leader epochs of all partitions."""
    rows = cluster.get(partitions.LIST.at(topic=_TOPIC))["items"]
    assert isinstance(rows, list)
    return sum(int(row["leader_epoch"]) for row in rows)


def _produce(bootstrap: str, seconds: float) -> int:
    """Send records with several producers at once; return the number of acknowledged records."""
    ends_s = time.monotonic() + seconds

    def send(_: int) -> int:
        stored = 0
        with Client(bootstrap) as client, client.producer(_TOPIC) as producer:
            while time.monotonic() < ends_s:
                with suppress(RaftlogError):
                    receipts = [producer.send(_VALUE) for _ in range(1000)]
                    stored += sum(receipt.result().offset >= 0 for receipt in receipts)
        return stored

    with ThreadPoolExecutor(PRODUCERS) as pool:
        return sum(pool.map(send, range(PRODUCERS)))
