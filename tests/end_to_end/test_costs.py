"""The cost of an act on real brokers, counted, against ``docs/performance-budget.md``."""

from __future__ import annotations

import http.client
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types
from tests.helpers.costs import MeteredProcess, TracedProcess, least_costs
from tests.helpers.real_cluster import create_topic

pytestmark = pytest.mark.e2e

BUDGET = Path(__file__).parents[2] / "docs" / "performance-budget.md"
TOPIC = "orders"
RECORDS = f"/v1/topics/{TOPIC}/partitions/0/records"
PRODUCE = {"Content-Type": media_types.BATCH}
FETCH = {"Accept": media_types.BATCH}
LARGE = 256 << 10  # bytes of one record whose copies are counted
NO_WORK = ("getpid", "epoll_pwait", "futex")  # turns and threads: counted as such, or not ours


def test_python_calls_are_within_their_budget(directory: Path) -> None:
    processes = {broker: MeteredProcess(directory, broker) for broker in (1, 2, 3)}
    with _brokers(directory, processes) as brokers:
        for act in ("produce", "fetch"):
            costs = least_costs({broker: one.begin for broker, one in processes.items()}, brokers.acts[act])
            brokers.check(act, "calls", {broker: counts["calls"] for broker, counts in costs.items()})


def test_allocations_and_copies_are_within_their_budget(directory: Path) -> None:
    processes = {broker: MeteredProcess(directory, broker, is_memory_seen=True) for broker in (1, 2, 3)}
    with _brokers(directory, processes) as brokers:
        meters = {broker: one.begin for broker, one in processes.items()}
        small = least_costs(meters, brokers.acts["produce"])
        brokers.check("produce", "allocations", {broker: counts["large"] for broker, counts in small.items()})
        large = least_costs(meters, brokers.acts["produce 256 KiB"])
        copies = {broker: counts["large_bytes"] // LARGE for broker, counts in large.items()}
        brokers.check("produce 256 KiB", "copies", copies)


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed; its package has its name"
)
def test_system_calls_and_loop_turns_are_within_their_budget(directory: Path) -> None:
    processes = {broker: TracedProcess(directory, broker) for broker in (1, 2, 3)}
    with _brokers(directory, processes) as brokers:
        for act in ("produce", "fetch"):
            costs = least_costs({broker: one.begin for broker, one in processes.items()}, brokers.acts[act])
            turns = {broker: counts.get("epoll_pwait", 0) for broker, counts in costs.items()}
            brokers.check(act, "turns", turns)
            working = {
                broker: sum(count for name, count in counts.items() if name not in NO_WORK)
                for broker, counts in costs.items()
            }
            brokers.check(act, "system calls", working)


@contextmanager
def _brokers(
    directory: Path, processes: Mapping[int, MeteredProcess] | Mapping[int, TracedProcess]
) -> Iterator[_Brokers]:
    commands = {broker: one.command for broker, one in processes.items()}
    with Cluster(directory / "cluster", brokers=len(commands), commands=commands) as cluster:
        brokers = _Brokers(cluster)
        with closing(brokers.connection):
            yield brokers


class _Brokers:
    """Three brokers with one partition, and one connection to its leader."""

    def __init__(self, cluster: Cluster) -> None:
        create_topic(cluster.url(1), TOPIC, 1)
        self._leader = cluster.leader(TOPIC, 0)
        where = urlsplit(cluster.url(self._leader))
        self.connection = http.client.HTTPConnection(where.hostname or "", where.port)
        small, large = (
            build_batch([Record(b"x" * size)], codec=Codec.NONE, timestamp_ms=1) for size in (1000, LARGE)
        )
        self.acts: Mapping[str, Callable[[], object]] = {
            "produce": lambda: self._ask("POST", f"{RECORDS}?acks=every", PRODUCE, small),
            "produce 256 KiB": lambda: self._ask("POST", f"{RECORDS}?acks=every", PRODUCE, large),
            "fetch": lambda: self._ask("GET", f"{RECORDS}?offset=0&max_bytes=1", FETCH),
        }

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> None:
        self.connection.request(method, path, body=body, headers=dict(headers))
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text)

    def check(self, act: str, what: str, costs: Mapping[int, int]) -> None:
        """Neither the leader nor a follower costs more than the budget says."""
        for broker, cost in costs.items():
            role = "leader" if broker == self._leader else "follower"
            budget = _budget().get((act, what, role))
            print(f"{act}, {what}, {role}: {cost}, budget {budget}")
            assert budget is not None, (act, what, role, cost)
            assert cost <= budget, (act, what, role)


def _budget() -> Mapping[tuple[str, str, str], int]:
    """The limits of the page's table, by act, kind of cost, and role."""
    row = re.compile(r"^\| ([a-z0-9 KiB]+) \| ([a-z ]+) \| (\d+) \| (\d+) \|", re.MULTILINE)
    return {
        (act, what, role): int(limit)
        for act, what, *limits in row.findall(BUDGET.read_text())
        for role, limit in zip(("leader", "follower"), limits, strict=True)
    }
