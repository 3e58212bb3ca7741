"""The acts whose costs are counted, on three real brokers.

``python -m tests.helpers.costed_brokers ACT`` prints the calls of the leader and of a follower by function,
and the number of files that these are in.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import media_types
from tests.helpers.costs import MeteredProcess, TracedProcess, least_costs, own_files
from tests.helpers.real_cluster import create_topic

TOPIC: Final = "orders"
LARGE: Final = 256 << 10  # bytes of one record whose copies are counted
# Most attempts are without a tick of any broker, and a leader that is late by five seconds is not lost.
TIMING: Final = {"TICK_MS": 1000, "HEARTBEAT_TICKS": 2, "ELECTION_TICKS": 7, "QUIESCE_TICKS": 7}
_RECORDS: Final = f"/v1/topics/{TOPIC}/partitions/0/records"
_PRODUCE: Final = {"Content-Type": media_types.BATCH}
_FETCH: Final = {"Accept": media_types.BATCH}
_JSON: Final = {"Content-Type": media_types.JSON}
_ORDER: Final = json.dumps({"records": [{"value": "x" * 100}]}).encode()

LOOK_S: Final = 0.002  # between two looks at the state of a broker's threads
IDLE_LOOKS: Final = 5  # in a row without a runnable thread: long enough for a sync by the kernel to end

Processes = Mapping[int, MeteredProcess] | Mapping[int, TracedProcess]


class CostedBrokers:
    """Three brokers with one partition, and one connection to its leader.

    The brokers take turns: the followers are stopped (SIGSTOP) when a request is sent, and continue one by
    one, each when the brokers before it are idle. So frames arrive in one order, on a busy machine, too.
    Without ``in_turns`` nothing is stopped, and an act takes a few milliseconds.
    """

    def __init__(self, cluster: Cluster, *, in_turns: bool) -> None:
        self._cluster = cluster
        create_topic(cluster.url(1), TOPIC, 1)
        self._leader = cluster.leader(TOPIC, 0)
        self._followers = [broker for broker in cluster.running if broker != self._leader]
        where = urlsplit(cluster.url(self._leader))
        self.connection = http.client.HTTPConnection(where.hostname or "", where.port)
        small, large = (
            build_batch([Record(b"x" * size)], codec=Codec.NONE, timestamp_ms=1) for size in (1000, LARGE)
        )
        self._ask_counted = self._ask_in_turns if in_turns else self._ask
        act = partial(partial, self._ask_counted)
        self.acts: Mapping[str, Callable[[], bytes]] = {
            "produce": act("POST", f"{_RECORDS}?acks=every", _PRODUCE, small),
            "produce 256 KiB": act("POST", f"{_RECORDS}?acks=every", _PRODUCE, large),
            "quorum produce": act("POST", f"{_RECORDS}?acks=quorum", _PRODUCE, small),
            "JSON produce": act("POST", f"/v1/topics/{TOPIC}/records", _JSON, _ORDER),
            "delayed produce": act("POST", f"{_RECORDS}?delay=1h", _JSON, _ORDER),
            "fetch": act("GET", f"{_RECORDS}?offset=0&max_bytes=1", _FETCH),
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
        return partial(self._ask_counted, "POST", f"{path}/members/one:poll", _JSON, body.encode())

    def _commits(self) -> Callable[[], object]:
        """One commit of the same offset, by a member."""
        offset = json.loads(self.acts["produce"]())["base_offset"]
        path, generation = self._joined()
        offsets = [{"topic": TOPIC, "partition": 0, "offset": offset}]
        body = json.dumps({"member_id": "one", "generation": generation, "offsets": offsets})
        return partial(self._ask_counted, "PUT", f"{path}/offsets", _JSON, body.encode())

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
        return self._answer()

    def _ask_in_turns(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> bytes:
        for broker in self._followers:
            self._cluster.pause(broker)
        try:
            self.connection.request(method, path, body=body, headers=dict(headers))
            self._wait_until_idle()
        finally:
            for broker in self._followers:
                self._cluster.resume(broker)
                self._wait_until_idle()
        return self._answer()

    def _answer(self) -> bytes:
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 204), (answer.status, text)
        return text

    def _wait_until_idle(self) -> None:
        """Return when no broker has a thread that runs, or could run, for a few looks in a row."""
        tasks = [Path(f"/proc/{self._cluster.pid(broker)}/task") for broker in self._cluster.running]
        idle, ends_at = 0, time.monotonic() + LIMIT_S
        while idle < IDLE_LOOKS:
            assert time.monotonic() < ends_at, self._cluster.state()
            time.sleep(LOOK_S)
            idle = 0 if any(map(_is_busy, tasks)) else idle + 1


def _is_busy(tasks: Path) -> bool:
    """Whether a thread of a process runs, waits for a core, or waits for the disk."""
    for task in tasks.iterdir():
        with suppress(OSError):  # the thread has ended meanwhile
            if (task / "stat").read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                return True
    return False


@contextmanager
def costed_brokers(
    directory: Path, processes: Processes, *, in_turns: bool = True
) -> Iterator[CostedBrokers]:
    """A cluster whose brokers run below these processes, with slow ticks: most attempts are without one."""
    commands = {broker: one.command for broker, one in processes.items()}
    cluster = Cluster(directory / "cluster", brokers=len(commands), commands=commands)
    for broker in commands:
        cluster.add_environment(
            broker, {f"RAFTLOG_BROKER__TIMING__{name}": str(value) for name, value in TIMING.items()}
        )
    with cluster:
        brokers = CostedBrokers(cluster, in_turns=in_turns)
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
