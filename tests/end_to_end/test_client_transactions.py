"""Transactions of the client on real brokers, while brokers and clients are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chaos.cluster import Cluster
from raftlog import Client, aio
from tests.helpers.async_tests import in_real_time
from tests.helpers.real_cluster import create_topic, eventually, values_of
from tests.helpers.real_cluster import next_line as line
from tests.helpers.waiting import limited
from transactions.batches import partition_of

pytestmark = pytest.mark.e2e

BATCH = 10  # inputs of one transaction at most

WRITER = """
import sys
from raftlog import Client
with Client(sys.argv[1]) as client, client.producer(
    sys.argv[2], transactional_id="copy-1", transaction_timeout="10m"
) as producer:
    with producer.transaction() as tx:
        tx.send("first", partition=0).result()
    try:
        with producer.transaction() as tx:
            for partition in range(2):
                tx.send("second", partition=partition).result()
            print("sent", flush=True)
            sys.stdin.readline()
    except Exception as error:
        print(type(error).__name__, flush=True)
    else:
        print(tx.outcome, flush=True)
"""

COPIER = """
import sys
from raftlog import Client, RaftlogError
with Client(sys.argv[1]) as client, client.consumer(
    "copiers", "raw", delivery="exactly_once", instance_id=sys.argv[2], limit=10,
    session_timeout="3s", transaction_timeout="5s",
) as consumer:
    for batch in consumer.batches():
        try:
            with batch.transaction() as tx:
                for message in batch:
                    tx.send("clean", message.value, key=message.value)
        except RaftlogError as error:
            print(error, file=sys.stderr)
        else:
            print(tx.outcome, len(batch), flush=True)
"""


@pytest.fixture
def client(unbroken: Cluster) -> Iterator[Client]:
    with Client(",".join(unbroken.urls)) as made:
        yield made


@contextmanager
def process(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A client in a process of its own, which is killed at the end."""
    command = [sys.executable, "-P", "-c", script, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        try:
            yield made
        finally:
            made.kill()


def visible(client: Client, topic: str, partitions: int) -> list[str]:
    """All that readers see, sorted; a leader that is new or deposed may show less."""
    found = []
    for number in range(partitions):
        partition, offset = client.partition(topic, number), 0
        while messages := (chunk := partition.read(offset)).messages:
            found += [str(message.value, "utf8") for message in messages]
            offset = chunk.next_offset
    return sorted(found)


# requirement: D3
def test_a_zombie_that_wakes_up_is_fenced(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "zombie", 2)
    with process(WRITER, unbroken.urls[0], "zombie") as writer:
        assert line(writer) == "sent"
        os.kill(writer.pid, signal.SIGSTOP)
        with client.producer("zombie", transactional_id="copy-1") as producer:
            with producer.transaction() as tx:
                tx.send("third", partition=1)
            os.kill(writer.pid, signal.SIGCONT)
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
            assert line(writer) == "ProducerFenced"
            with producer.transaction() as tx:
                tx.send("fourth", partition=1)
    eventually(lambda: visible(client, "zombie", 2) == ["first", "fourth", "third"], what="what is committed")


# requirement: D3
@in_real_time
async def test_a_transaction_is_committed_although_its_coordinator_is_killed(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 3)
    async with aio.Client(",".join(cluster.urls)) as client:
        producer = client.producer("orders", transactional_id="copy-1")
        for number in range(3):
            async with producer.transaction() as tx:
                for partition in range(3):
                    await (await tx.send(str(number), partition=partition))
                if number == 1:
                    cluster.kill(await coordinator_of(client, "copy-1"))
            assert tx.outcome == "committed"
    for partition in range(3):
        assert values_of(cluster, "orders", partition) == ["0", "1", "2"]


async def coordinator_of(client: aio.Client, name: str) -> int:
    """The broker that coordinates a transactional id, once there is one."""
    async with limited("a coordinator"):
        while True:
            partitions = await client.topics.partitions("__transactions")
            leader = partitions[partition_of(name, len(partitions))].leader
            if leader is not None:
                return leader


# requirement: D3 D4
def test_each_input_has_one_output_while_workers_are_killed(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "raw", 4)
    create_topic(unbroken.urls[0], "clean", 4)
    urls = ",".join(unbroken.urls)
    with inputs(client, "raw") as (sent, ends):
        for victim in range(3):
            with process(COPIER, urls, "one") as one, process(COPIER, urls, "two"):
                for _ in range(1 + 2 * victim):
                    assert line(one).startswith(("committed", "aborted"))

    def committed() -> dict[int, int]:
        return {item.partition: item.committed_offset for item in client.groups.offsets("copiers")}

    def is_done() -> bool:
        """Whether the offset behind the last input of each partition is committed, or a later one."""
        found = committed()
        return all(found.get(partition, 0) >= end for partition, end in ends.items())

    with process(COPIER, urls, "one"), process(COPIER, urls, "two"):
        eventually(is_done, what="all inputs are committed", progress=committed)
    eventually(lambda: visible(client, "clean", 4) == sorted(sent), what="one output for each input")


@contextmanager
def inputs(client: Client, topic: str) -> Iterator[tuple[list[str], dict[int, int]]]:
    """Numbers, a few at a time, as long as the block lasts: no copier finds that nothing is left.

    Also the offset behind the last one of each partition.
    """
    sent: list[str] = []
    ends: dict[int, int] = {}
    stopping = threading.Event()

    def produce() -> None:
        with client.producer(topic) as producer:
            while not stopping.is_set():
                for _ in range(4 * BATCH):
                    receipt = producer.send(str(len(sent)), partition=len(sent) % 4).result()
                    sent.append(str(len(sent)))
                    ends[receipt.partition] = receipt.offset + 1
                stopping.wait(0.2)  # between two portions, so that the copiers can catch up

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent, ends
    finally:
        stopping.set()
        thread.join()
