"""Consumer groups on real brokers: nothing is skipped and nothing acknowledged is lost, whoever is killed."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import (
    RETRYABLE,
    Answer,
    call,
    create_topic,
    eventually,
    has_leaders,
    produce,
    produce_surely,
    settled,
)

pytestmark = pytest.mark.e2e

PARTITIONS = 6
RECORDS = 600


@dataclass(slots=True)
class Worker:
    """A process without state of its own, such as a script with curl: polls, processes, acknowledges.

    Every tenth response is lost: the worker repeats that poll as it was.
    """

    name: str
    urls: list[str]
    seen: Counter[tuple[int, int]]
    owners: dict[tuple[int, int], set[str]]
    failures: list[str]
    stop: threading.Event = field(default_factory=threading.Event)
    rng: random.Random = field(default_factory=random.Random)

    def run(self) -> None:
        """Poll until it is stopped, then leave."""
        generation, ack = -1, list[dict[str, object]]()
        urls = itertools.cycle(self.rng.sample(self.urls, len(self.urls)))
        while not self.stop.is_set():
            body = {"topics": ["jobs"], "generation": generation, "ack": ack, "wait": "1s", "limit": 20}
            answer = self._ask(next(urls), "POST", f"/v1/groups/crew/members/{self.name}:poll", body)
            if answer is None or self.rng.random() < 0.1:
                continue
            if answer.status != 200:
                if answer.status not in (429, 503, 504):
                    self.failures.append(f"{self.name}: {answer}")
                    return
                continue
            generation = answer.number("generation")
            for record in answer.rows():
                self.seen[int(str(record["partition"])), int(str(record["offset"]))] += 1
            for assigned in answer.rows("assignment"):
                partitions = assigned["partitions"]
                assert isinstance(partitions, list)
                for number in partitions:
                    self.owners.setdefault((generation, number), set()).add(self.name)
            ack = answer.rows("positions") if answer.json["action"] == "continue" else []
        while self._ask(next(urls), "DELETE", f"/v1/groups/crew/members/{self.name}") is None:
            pass

    def _ask(self, url: str, method: str, path: str, body: object = None) -> Answer | None:
        try:
            return call(url, method, path, body, timeout_s=20)
        except OSError:
            time.sleep(0.05)  # the broker is down; another one is asked, at once if this were not here
            return None


@contextmanager
def working(workers: list[Worker]) -> Iterator[None]:
    """They poll inside the block."""
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop.set()
        for thread in threads:
            thread.join(timeout=LIMIT_S)
            assert not thread.is_alive()


# requirement: G3 G4 ST2 D2
def test_workers_get_every_record_while_brokers_are_killed(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "jobs", PARTITIONS, known_to=cluster.urls)
    seen, owners, failures = Counter[tuple[int, int]](), dict[tuple[int, int], set[str]](), list[str]()
    workers = [
        Worker(f"w{number}", list(cluster.urls), seen, owners, failures, rng=random.Random(number))
        for number in range(3)
    ]
    wanted: set[tuple[int, int]] = set()
    with working(workers):
        for number in range(RECORDS // 10):
            partition = number % PARTITIONS
            values = [f"{number}-{n}" for n in range(10)]
            first = produce_surely(cluster.urls, "jobs", values, partition=partition)
            wanted |= {(partition, first + n) for n in range(10)}
            if number in (15, 30, 45):
                killed = cluster.brokers[number % 3]
                cluster.kill(killed)
                cluster.start(killed)

        def is_done() -> bool:
            assert not failures, failures
            found = call(cluster.urls[0], "GET", "/v1/groups/crew/offsets")
            return found.status == 200 and _lag(found) == 0 and len(found.rows("items")) == PARTITIONS

        eventually(is_done, what="all records are acknowledged")
    assert not wanted - seen.keys(), sorted(wanted - seen.keys())[:20]
    assert all(len(names) == 1 for names in owners.values()), owners


def _lag(found: Answer) -> int:
    return sum(int(str(item["lag"] if item["lag"] is not None else 1)) for item in found.rows("items"))


# requirement: ST2 C5
def test_committed_offsets_survive_the_death_of_their_coordinator(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "jobs", 3)
    produce_surely(cluster.urls, "jobs", [str(number) for number in range(50)], partition=0)
    with Client(",".join(cluster.urls)) as client:
        for offset in range(1, 41):
            client.groups.commit("crew", {("jobs", 0): offset})
            if offset in (10, 25):
                coordinator = eventually(
                    lambda: client.groups.describe("crew").coordinator, what="a coordinator"
                )
                cluster.kill(coordinator)
                cluster.start(coordinator)
            (found,) = client.groups.offsets("crew")
            assert found.committed_offset == offset
        (change,) = client.groups.reset("crew", shift=-10, dry_run=True)
        assert (change.before, change.after) == (40, 30)
        (found,) = client.groups.offsets("crew")
        assert found.committed_offset == 40
    for broker in cluster.brokers:
        cluster.kill(broker)
    cluster.start()
    eventually(lambda: has_leaders(cluster.urls[0], "__offsets", 16), what="a coordinator")
    (shown,) = settled(cluster.urls[1], "GET", "/v1/groups/crew/offsets").rows("items")
    assert shown["committed_offset"] == 40
    refused = produce(cluster.urls[0], "__offsets", ["forged"])
    assert (refused.status, refused.json["field"]) == (422, "topic")


# requirement: ST2
def test_a_group_in_use_outlives_its_coordinator(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "jobs", 3)
    member = "/v1/groups/crew/members/a"
    url = cluster.urls[0]
    member_a = {"topics": ["jobs"], "member_id": "a"}
    joined = settled(url, "POST", "/v1/groups/crew/members", {**member_a, "session_timeout": "10m"})
    generation = joined.number("generation")
    assert (
        settled(url, "POST", f"{member}:sync", {"generation": generation, "assignments": "auto"}).status
        == 200
    )
    coordinator = settled(url, "GET", "/v1/groups/crew/coordinator").number("broker_id")
    cluster.kill(coordinator)
    other = cluster.url(next(broker for broker in cluster.brokers if broker != coordinator))

    def beats() -> bool:
        answer = call(other, "POST", f"{member}:heartbeat", {"generation": generation})
        assert answer.status in (200, *RETRYABLE), answer
        return answer.json == {"action": "continue"}

    eventually(beats, what="the next coordinator knows the member")
    cluster.start(coordinator)


# requirement: C1
def test_a_position_above_the_end_is_refused(unbroken: Cluster) -> None:
    url = unbroken.urls[0]
    create_topic(url, "short", 1)
    produce_surely([url], "short", ["only"])
    path = "/v1/groups/readers/members/one:poll"

    def poll(offset: int) -> Answer:
        place = {"topic": "short", "partition": 0, "offset": offset}
        return settled(url, "POST", path, {"topics": ["short"], "positions": [place], "wait": "5s"})

    # A new leader may add an offset. A poll that ends before the member has joined reads nothing.
    refused = eventually(lambda: found if (found := poll(100)).status != 200 else None, what="the refusal")
    assert (refused.status, refused.json["code"]) == (416, "offset_out_of_range")
    assert refused.json["start"] == 0
    assert 1 <= refused.number("end") < 100
    rows = eventually(lambda: poll(0).rows(), what="the record, from a leader that answers")
    assert [row["value"] for row in rows] == ["only"]


# requirement: D2
def test_a_poll_whose_acknowledgement_is_refused_continues_where_the_group_is(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "jobs", 1)
    produce_surely(unbroken.urls, "jobs", [str(number) for number in range(10)])

    session = {"late": "1s", "other": "10m"}

    def polled(member: str, generation: int, ack: int | None, limit: int = 100) -> Answer:
        places = [] if ack is None else [{"topic": "jobs", "partition": 0, "offset": ack}]
        body = {"topics": ["jobs"], "generation": generation, "ack": places, "limit": limit}
        body |= {"wait": "2s", "session_timeout": session[member]}

        def attempt() -> Answer | None:
            answer = call(unbroken.urls[0], "POST", f"/v1/groups/crew/members/{member}:poll", body)
            if answer.status != 200:
                return None
            refusals.append(answer.json.get("ack_error"))
            # Without a leader for a while a poll ends without records.
            return answer if answer.rows("assignment") and (ack or answer.rows()) else None

        return eventually(attempt, what=f"{member} has the partition, and its records")

    refusals: list[object] = []
    late = polled("late", -1, None, limit=5)
    other = polled("other", -1, None)  # the session of ``late`` ends meanwhile
    assert [record["offset"] for record in other.rows()] == list(range(10))
    polled("other", other.number("generation"), 10)
    left = settled(unbroken.urls[0], "DELETE", "/v1/groups/crew/members/other")
    assert left.status in (204, 404), left  # 404 after an answer that was lost
    refusals.clear()
    again = polled("late", late.number("generation"), 5, limit=2)
    assert refusals[0] == "member_not_found"
    assert (again.rows(), again.rows("positions")[0]["offset"]) == ([], 10)
