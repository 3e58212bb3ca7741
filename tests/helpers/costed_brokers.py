"""The acts whose costs are counted, on three real brokers.

``python -m tests.helpers.costed_brokers ACT`` prints the calls of the leader and of a follower by function,
and the number of files that these are in.
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
from tests.helpers.costs import MeteredProcess, TracedProcess, least_costs, own_files
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
            "quorum produce": lambda: self._ask("POST", f"{_RECORDS}?acks=quorum", _PRODUCE, small),
            "JSON produce": lambda: self._ask("POST", f"/v1/topics/{TOPIC}/records", _JSON, _ORDER),
            "delayed produce": lambda: self._ask("POST", f"{_RECORDS}?delay=1h", _JSON, _ORDER),
            "fetch": lambda: self._ask("GET", f"{_RECORDS}?offset=0&max_bytes=1", _FETCH),
        }

    def role(self, broker: int) -> str:
        """``leader`` or ``follower`` of the partition."""
        return "leader" if broker == self._leader else "follower"

    def act(self, name: str) -> Callable[[], object]:
        """Return an act to count: a function that may be called again and again."""
        match name:
            case "group poll":
                return self._polls(1)
            case "poll of 45 records":
                return self._polls(45)
            case "offset commit":
                return self._commits()
        return self.acts[name]

    def _polls(self, records: int) -> Callable[[], object]:
        """One poll of a member. Each gives the same records, the newest ones, each in a batch of its own."""
        offsets = [json.loads(self.acts["JSON produce"]())["records"][0]["offset"] for _ in range(records)]
        path, generation = self._joined()
        place = {"topic": TOPIC, "partition": 0, "offset": offsets[0]}
        body = json.dumps({"generation": generation, "positions": [place], "limit": records, "wait": 0})
        return lambda: self._ask("POST", f"{path}/members/one:poll", _JSON, body.encode())

    def _commits(self) -> Callable[[], object]:
        """One commit of the same offset, by a member."""
        offset = json.loads(self.acts["produce"]())["base_offset"]
        path, generation = self._joined()
        offsets = [{"topic": TOPIC, "partition": 0, "offset": offset}]
        body = json.dumps({"member_id": "one", "generation": generation, "offsets": offsets})
        return lambda: self._ask("PUT", f"{path}/offsets", _JSON, body.encode())

    def _joined(self) -> tuple[str, int]:
        """The path and generation of a group whose coordinator leads the partition, too.

        Its only member is named ``one``.
        """
        wanted: dict[str, object] = {"topics": [TOPIC], "limit": 1, "wait": "5s"}
        for group in map("readers-{}".format, count()):
            path = f"/v1/groups/{group}"
            answer = self._ask("POST", f"{path}/members/one:poll", _JSON, json.dumps(wanted).encode())
            if self._coordinates(group):
                return path, int(json.loads(answer)["generation"])
        raise AssertionError("the numbers are over")

    def _coordinates(self, group: str) -> bool:
        found = json.loads(self._ask("GET", f"/v1/groups/{group}/coordinator", {}))
        return bool(found["broker_id"] == self._leader)

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
        self.connection.request(method, path, body=body, headers=dict(headers))
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 204), (answer.status, text)
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
            do_it = brokers.act(act)
            meters = {broker: one.begin_by_function for broker, one in processes.items()}
            costs = least_costs(meters, do_it, attempts=30)
            for broker, calls in costs.items():
                total, files = sum(calls.values()), len(own_files(calls))
                sys.stdout.write(f"broker {broker}, {brokers.role(broker)}: {total} calls, {files} files\n")
                for name, number in sorted(calls.items()):
                    if number:
                        sys.stdout.write(f"{number:6d}  {name}\n")


if __name__ == "__main__":
    main()
