"""The acts whose costs are counted, on three real brokers.

``python -m tests.helpers.costed_brokers ACT`` prints the calls of the leader and of a follower by function.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types
from tests.helpers.costs import MeteredProcess, TracedProcess, least_costs
from tests.helpers.real_cluster import create_topic

TOPIC: Final = "orders"
LARGE: Final = 256 << 10  # bytes of one record whose copies are counted
# Groups are quiescent after seconds, and a leader that is late by five seconds is not lost.
TIMING: Final = {"TICK_MS": 500, "ELECTION_TICKS": 14, "QUIESCE_TICKS": 14}
_RECORDS: Final = f"/v1/topics/{TOPIC}/partitions/0/records"
_PRODUCE: Final = {"Content-Type": media_types.BATCH}
_FETCH: Final = {"Accept": media_types.BATCH}
_JSON: Final = {"Content-Type": media_types.JSON}
_ORDER: Final = json.dumps({"records": [{"value": "x" * 100}]}).encode()

Processes = Mapping[int, MeteredProcess] | Mapping[int, TracedProcess]


class CostedBrokers:
    """Three brokers with one partition, and one connection to its leader."""

    def __init__(self, cluster: Cluster) -> None:
        create_topic(cluster.url(1), TOPIC, 1)
        self._leader = cluster.leader(TOPIC, 0)
        where = urlsplit(cluster.url(self._leader))
        self.connection = http.client.HTTPConnection(where.hostname or "", where.port)
        small, large = (
            build_batch([Record(b"x" * size)], codec=Codec.NONE, timestamp_ms=1) for size in (1000, LARGE)
        )
        self.acts: Mapping[str, Callable[[], bytes]] = {
            "produce": lambda: self._ask("POST", f"{_RECORDS}?acks=every", _PRODUCE, small),
            "produce 256 KiB": lambda: self._ask("POST", f"{_RECORDS}?acks=every", _PRODUCE, large),
            "JSON produce": lambda: self._ask("POST", f"/v1/topics/{TOPIC}/records", _JSON, _ORDER),
            "fetch": lambda: self._ask("GET", f"{_RECORDS}?offset=0&max_bytes=1", _FETCH),
        }

    def role(self, broker: int) -> str:
        """``leader`` or ``follower`` of the partition."""
        return "leader" if broker == self._leader else "follower"

    def polls(self) -> Callable[[], object]:
        """One poll of a member that is alone in its group, whose coordinator leads the partition, too.

        Each gives the same record, the newest one.
        """
        newest = json.loads(self.acts["produce"]())["base_offset"]
        wanted: dict[str, object] = {"topics": [TOPIC], "limit": 1, "wait": "5s"}
        for group in map("readers-{}".format, count()):
            path = f"/v1/groups/{group}/members/one:poll"
            joined = json.loads(self._ask("POST", path, _JSON, json.dumps(wanted).encode()))
            if self._coordinates(group):
                return self._poll(path, joined["generation"], newest)
        raise AssertionError("the numbers are over")

    def _poll(self, path: str, generation: int, offset: int) -> Callable[[], object]:
        place = {"topic": TOPIC, "partition": 0, "offset": offset}
        body = json.dumps({"generation": generation, "positions": [place], "limit": 1, "wait": 0})
        return lambda: self._ask("POST", path, _JSON, body.encode())

    def _coordinates(self, group: str) -> bool:
        found = json.loads(self._ask("GET", f"/v1/groups/{group}/coordinator", {}))
        return bool(found["broker_id"] == self._leader)

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
        self.connection.request(method, path, body=body, headers=dict(headers))
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text)
        return text


@contextmanager
def costed_brokers(directory: Path, processes: Processes) -> Iterator[CostedBrokers]:
    """A cluster whose brokers run below these processes, with slow ticks: most attempts are without one."""
    commands = {broker: one.command for broker, one in processes.items()}
    cluster = Cluster(directory / "cluster", brokers=len(commands), commands=commands)
    for broker in commands:
        cluster.add_environment(
            broker, {f"RAFTLOG_BROKER__TIMING__{name}": str(value) for name, value in TIMING.items()}
        )
    with cluster:
        brokers = CostedBrokers(cluster)
        with closing(brokers.connection):
            yield brokers


def main() -> None:
    """See the module."""
    act = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        processes = {broker: MeteredProcess(Path(directory), broker) for broker in (1, 2, 3)}
        with costed_brokers(Path(directory), processes) as brokers:
            brokers.acts["produce"]()  # a fetch returns it
            do_it = brokers.polls() if act == "poll" else brokers.acts[act]
            meters = {broker: one.begin_by_function for broker, one in processes.items()}
            costs = least_costs(meters, do_it, attempts=30)
            for broker, calls in costs.items():
                sys.stdout.write(f"broker {broker}, {brokers.role(broker)}: {sum(calls.values())} calls\n")
                for name, number in sorted(calls.items()):
                    if number:
                        sys.stdout.write(f"{number:6d}  {name}\n")


if __name__ == "__main__":
    main()
