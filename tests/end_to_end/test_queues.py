"""Queues on real brokers: workers and coordinators are killed, and each job is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.testing.waits import LIMIT_S
from tests.helpers.queue_crew import Got, deliveries_in
from tests.helpers.real_cluster import call, create_topic, eventually

pytestmark = pytest.mark.e2e

WORKERS, VICTIMS = 16, 4
JOBS, PARTITIONS = 300, 3
LEASE_S = 8


@contextmanager
def crew(urls: list[str], directory: Path) -> Iterator[None]:
    """The workers; all of them are gone at the end."""
    names = [",".join(urls), "jobs", str(directory), str(WORKERS), str(VICTIMS), f"{LEASE_S}s"]
    command = [sys.executable, "-m", "tests.helpers.queue_crew", *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(LIMIT_S)


def figure(urls: list[str], name: str) -> float:
    """A metric, of all brokers."""
    pages = [call(url, "GET", "/metrics").body.decode() for url in urls]
    lines = [line.split() for page in pages for line in page.splitlines()]
    return sum(float(value) for label, value, *_ in lines if label == name)


def done(deliveries: list[Got]) -> set[tuple[int, int]]:
    """The jobs that were acknowledged."""
    return {each.place for each in deliveries if each.done_s is not None}


# requirement: A7
def test_each_job_is_done_although_workers_and_their_coordinator_are_killed(
    cluster: Cluster, directory: Path
) -> None:
    """None is lost, and none is held for good by a worker that died: each of them comes again."""
    create_topic(cluster.urls[0], "jobs", PARTITIONS)
    with Client(",".join(cluster.urls)) as client:
        with client.producer("jobs") as producer:
            for number in range(JOBS):
                producer.send(str(number), key=str(number))
        logs = directory / "logs"
        logs.mkdir()
        with crew(cluster.urls, logs):

            def hanging() -> list[Got] | None:
                found = [each for each in deliveries_in(logs) if each.is_hanging]
                return found if len(found) == VICTIMS else None

            victims = eventually(hanging, what="the victims have jobs")
            eventually(lambda: len(done(deliveries_in(logs))) > JOBS / 6, what="the others have done some")
            for victim in victims:
                os.kill(victim.pid, signal.SIGKILL)
            coordinator = eventually(
                lambda: client.groups.describe("jobs").coordinator, what="a coordinator of the group"
            )
            cluster.kill(coordinator)
            cluster.start(coordinator)
            eventually(
                lambda: len(done(deliveries_in(logs))) == JOBS,
                what="all jobs are done",
                progress=lambda: len(done(deliveries_in(logs))),
            )
        state = client.queue("jobs").describe()
        committed = {row.partition: row.lag for row in client.groups.offsets("jobs")}
    deliveries = deliveries_in(logs)
    by_job: dict[tuple[int, int], list[Got]] = defaultdict(list)
    for each in deliveries:
        by_job[each.place].append(each)
    waits = []
    for some in by_job.values():
        for before, after in pairwise(sorted(some, key=lambda each: each.deliveries)):
            assert after.got_s >= before.until_s - 0.05, (before, after)  # nobody else had it meanwhile
            assert after.deliveries > before.deliveries
            waits.append(after.got_s - before.until_s)
    print(f"{len(deliveries)} deliveries of {len(by_job)} jobs; after a lease: {sorted(waits)}")
    assert {each.place for each in victims} <= done(deliveries)
    assert all(len(by_job[each.place]) > 1 for each in victims)
    assert len(by_job) == JOBS
    assert all((part.leased, part.waiting, part.dead) == (0, 0, 0) for part in state.partitions), state
    assert set(committed.values()) == {0}


# requirement: A7
def test_a_failing_job_is_a_dead_letter_and_order_is_kept_meanwhile(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "steps", 2)
    with Client(",".join(unbroken.urls)) as client:
        for number in range(10):
            client.send("steps", str(number), key=f"k{number % 2}")
        queue = client.queue("steps", group="crew")
        seen: dict[bytes | None, list[str]] = defaultdict(list)
        for job in queue.jobs(limit=4, ordered_by_key=True, max_deliveries=3, idle="50s"):
            seen[job.key].append((job.value or b"").decode())
            if job.value == b"3":
                job.nack(delay="300ms", reason="bad step")
            else:
                job.ack()
            if sum(map(len, seen.values())) == 12:  # one more would be in the figures below
                break
        assert seen == {b"k0": list("02468"), b"k1": list("1333579")}
        letters = eventually(lambda: client.dead_letters.list("steps", "crew"), what="the dead letter")
        assert [(each.value, each.reason, each.attempts) for each in letters] == [(b"3", "bad step", 3)]
        eventually(
            lambda: figure(unbroken.urls, "raftlog_queue_open_jobs") == 0,
            what="the coordinator knows that the letter is stored",
        )
        assert figure(unbroken.urls, "raftlog_queue_deliveries_total") == 12
        assert figure(unbroken.urls, "raftlog_queue_redeliveries_total") == 2
        assert figure(unbroken.urls, "raftlog_queue_jobs_done_total") == 9
        assert figure(unbroken.urls, "raftlog_queue_jobs_dead_total") == 1
        eventually(lambda: {row.lag for row in client.groups.offsets("crew")} == {0}, what="no lag")
        assert [each.id for each in client.dead_letters.redrive("steps", "crew", all=True)] == [letters[0].id]
        for again in queue.jobs(ordered_by_key=True, idle="50s"):
            assert (again.value, again.deliveries) == (b"3", 1)
            again.ack()
            break
        assert figure(unbroken.urls, "raftlog_queue_deliveries_total") == 13
        assert client.dead_letters.list("steps", "crew") == []
