"""When a cluster is healthy enough that a fault may take a whole disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from chaos.cluster_view import ClusterView
from chaos.harness.arena import Arena, Draw, NoTarget
from chaos.harness.faults.resources import no_descriptors
from chaos.harness.shim.shim import Shim

BROKERS = (1, 2, 3)


def topic(name: str, *, internal: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": name,
        "partitions": 1,
        "replication_factor": 3,
        "internal": internal,
        "config": {},
        "metadata_version": 1,
    }


def partition(**changed: object) -> dict[str, Any]:
    return {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 1,
        "replicas": [*BROKERS],
        "learners": [],
        "in_sync": [*BROKERS],
        "commit_index": 0,
        "log_start_offset": 0,
        "high_watermark": 0,
        "log_end_offset": 0,
        "size_bytes": 0,
    } | changed


@dataclass
class Described(ClusterView):
    """Three brokers, and topics with one partition each."""

    partitions: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            name: partition() for name in ("own", "__offsets", "__transactions", "others")
        }
    )
    metrics_of: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(dict.fromkeys(BROKERS, ""))

    @property
    def running(self) -> list[int]:
        """All of them."""
        return [*BROKERS]

    def get(self, path: str, *, broker: int | None = None, answer_s: float = 0) -> dict[str, object]:
        """The topics, or the partition of one."""
        name = path.split("/")[3].split("?")[0] if path.count("/") > 2 else ""
        if not name:
            return {"items": [topic(each, internal=each.startswith("__")) for each in self.partitions]}
        return {"items": [self.partitions[name]]}

    def metrics(self, *names: str, broker: int) -> list[float]:
        """Three partitions are served, and nothing is wrong but for ``metrics_of``."""
        usual = {'raftlog_hosted_replicas{state="serving"}': 3.0}
        return [(usual | self.metrics_of).get(name, 0.0) for name in names]

    def is_ready(self, broker: int) -> bool:
        """All of them."""
        return True


def test_a_cluster_is_healthy_whatever_topics_of_others_are() -> None:
    cluster = Described()
    cluster.partitions["others"] = partition(leader=None, in_sync=[])
    assert Arena(cluster, topic="own").unhealthy() is None


@pytest.mark.parametrize("name", ["own", "__offsets", "__transactions"])
@pytest.mark.parametrize("wrong", [{"rejoining": [1]}, {"in_sync": [2, 3]}, {"leader": None}], ids=str)
def test_a_replica_that_lacks_records_is_waited_for(name: str, wrong: dict[str, Any]) -> None:
    """Else a second disk may be lost meanwhile, and with both of them acknowledged records."""
    cluster = Described()
    cluster.partitions[name] = partition(**wrong)
    assert "in sync" in str(Arena(cluster, topic="own").unhealthy())


@pytest.mark.parametrize(
    "metrics",
    [
        {"raftlog_rejoining_replicas": 1.0},
        {'raftlog_hosted_replicas{state="opening"}': 1.0},
        {'raftlog_hosted_replicas{state="serving"}': 2.0},
    ],
    ids=str,
)
def test_replicas_that_are_not_open_yet_are_waited_for(metrics: dict[str, float]) -> None:
    """Their leader may not have heard yet that they have lost their files."""
    assert Arena(Described(metrics_of=metrics), topic="own").unhealthy() is not None


@dataclass
class Starting(Described):
    """Brokers that do not answer yet."""

    def is_alive(self, broker: int) -> bool:
        """None of them."""
        return False


def test_a_process_that_does_not_serve_yet_keeps_its_descriptors() -> None:
    """It imports its modules, and Python prints a traceback where it cannot open one."""
    arena = Arena(Starting(), shims={1: cast("Shim", None)})
    with pytest.raises(NoTarget, match="broker 1 is starting"):
        next(no_descriptors(arena, Draw(arena, seed=1, target="broker 1")))
