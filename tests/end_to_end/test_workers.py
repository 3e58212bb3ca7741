"""Workers: calls side by side, retries, dead letters, and clean ends, on real brokers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from chaos.cluster import Cluster
from raftlog import Backoff, Client, Message, TopicNotFound, aio
from raftlog.records.failures import FailedRecord, Origin
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = pytest.mark.e2e

STRICT = 500  # records; at least ten seconds of work after the twentieth
SESSION = f"{LIMIT_S:g}s"  # a worker that is late on a busy machine gets no record twice


@pytest.fixture
def client(unbroken: Cluster) -> Iterator[Client]:
    with Client(",".join(unbroken.urls)) as made:
        yield made


def committed(client: Client, group: str, topic: str) -> dict[int, int]:
    return {
        item.partition: item.committed_offset for item in client.groups.offsets(group) if item.topic == topic
    }


def dead_letter(client: Client, topic: str, partitions: int) -> Message:
    """The only record of a topic; a leader that is new may not know at once that it is committed."""

    def found() -> list[Message]:
        numbers = range(partitions)
        return [m for number in numbers for m in client.partition(topic, number).read("earliest").messages]

    (dead,) = eventually(found, what="a dead letter")
    return dead


@contextmanager
def running(client: Client) -> Iterator[threading.Thread]:
    """``client.run()`` in a thread; stopped at the end."""
    thread = threading.Thread(target=client.run)
    thread.start()
    try:
        yield thread
    finally:
        client.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


# requirement: D2
def test_a_key_is_handled_in_order_and_other_keys_meanwhile(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "lanes", 2)
    with client.producer("lanes") as producer:
        for number in range(200):
            producer.send(str(number), key=f"k{number % 10}")
    lock, running_keys, handled = threading.Lock(), set[bytes](), defaultdict[bytes, list[int]](list)

    two_keys = threading.Barrier(2)

    @client.worker("lanes", group="lanes", concurrency=8, order="key", session_timeout=SESSION)
    def handle(message: Message) -> None:
        if message.value in (b"0", b"1"):
            two_keys.wait(LIMIT_S)  # the first records of two keys wait for one another
        with lock:
            assert message.key not in running_keys
            running_keys.add(message.key)
        time.sleep(0.002)  # a handler that takes its time; the verdict does not depend on how much
        with lock:
            running_keys.discard(message.key)
            handled[message.key].append(int(message.value))

    with running(client):
        eventually(lambda: sum(map(len, handled.values())) == 200, what="all records")
    assert all(numbers == sorted(numbers) for numbers in handled.values())
    assert sum(committed(client, "lanes", "lanes").values()) == 200


# requirement: A7
def test_a_record_that_fails_is_tried_again_and_blocks_nothing(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "flaky", 2)
    for number in range(6):
        client.send("flaky", str(number), key="k", partition=number % 2, headers={"trace": "t"}, tags=["red"])
    calls = defaultdict[int, list[float]](list)
    seen: list[Message] = []

    @client.worker(
        "flaky",
        group="g",
        retry=Backoff("200ms", max="1s", attempts=3),
        dead_letter=True,
        value=int,
        session_timeout=SESSION,
    )
    def handle(message: Message) -> None:
        calls[message.value].append(time.monotonic())
        seen.append(message)
        if message.value == 2 or (message.value == 3 and len(calls[3]) == 1):
            raise LookupError(f"no customer {message.value}")

    with running(client):
        eventually(lambda: len(calls[2]) == 3 and len(calls[3]) == 2, what="all attempts")
        eventually(lambda: committed(client, "g", "flaky.g.retry") == {0: 2, 1: 1}, what="the commits")
    assert {number: len(times) for number, times in calls.items()} == {0: 1, 1: 1, 2: 3, 3: 2, 4: 1, 5: 1}
    assert calls[2][1] - calls[2][0] >= 0.1
    again = [message for message in seen if message.value == 3]
    assert replace(again[0], crc=0) == replace(again[1], crc=0)  # the handler sees the record of its producer
    assert committed(client, "g", "flaky") == {0: 3, 1: 3}
    dead = dead_letter(client, "flaky.g.dlq", 2)
    failed = FailedRecord.from_dead_letter(dead.value, dead.headers, dead.timestamp_ms)
    assert (failed.origin, failed.attempts) == (Origin("flaky", 0, 1), 3)
    assert (failed.key, failed.value, failed.reason) == (b"k", b"2", "LookupError: no customer 2")
    assert failed.headers == seen[0].headers
    assert dead.timestamp_ms == next(message.timestamp_ms for message in seen if message.value == 2)


# requirement: A7
def test_a_record_behind_one_that_failed_does_not_wait_for_it(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "behind", 1)
    for number in range(3):
        client.send("behind", str(number), key="k")
    handled: list[int] = []

    @client.worker("behind", group="g", retry=Backoff("1h", max="1h"), value=int, session_timeout=SESSION)
    def handle(message: Message) -> None:
        if message.value == 0:
            raise LookupError("not within this test")
        handled.append(message.value)

    with running(client):
        eventually(lambda: handled == [1, 2], what="the records behind it")
        eventually(lambda: committed(client, "g", "behind") == {0: 3}, what="the commit")


# requirement: A7
def test_a_value_that_cannot_be_decoded_is_a_dead_letter_at_once(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "garbled", 1)
    client.send("garbled", b"{")
    client.send("garbled", b'{"a": 1}')
    handled = []

    @client.worker(
        "garbled",
        group="g",
        retry=Backoff("1h", max="1h"),
        dead_letter=True,
        value=json.loads,
        session_timeout=SESSION,
    )
    def handle(message: Message) -> None:
        handled.append(message.value)

    with running(client):
        eventually(lambda: handled == [{"a": 1}], what="the good record")
        eventually(lambda: committed(client, "g", "garbled") == {0: 2}, what="the commit")
    dead = dead_letter(client, "garbled.g.dlq", 1)
    assert FailedRecord.from_dead_letter(dead.value, dead.headers, 0).attempts == 1


# requirement: D2
def test_without_retries_an_error_ends_the_worker_before_the_record(
    unbroken: Cluster, client: Client
) -> None:
    create_topic(unbroken.urls[0], "strict", 1)
    with client.producer("strict") as producer:
        for number in range(STRICT):
            producer.send(str(number), partition=0)
    handled: list[int] = []

    @client.worker("strict", group="strict", concurrency=4, order="none", value=int, session_timeout=SESSION)
    def handle(message: Message) -> None:
        handled.append(message.value)
        if message.value == 20:
            raise ZeroDivisionError("the twentieth")
        if message.value > 20:
            time.sleep(0.1)  # others at the same time are slow, so that the error is seen before the end

    with pytest.raises(ZeroDivisionError, match="the twentieth"):
        client.run()
    assert committed(client, "strict", "strict") == {0: 20}
    assert set(range(21)) <= set(handled)
    assert len(handled) < STRICT


def test_a_topic_that_does_not_exist_ends_run(client: Client) -> None:
    client.worker("nowhere", group="g", dead_letter=True)(print)
    with pytest.raises(TopicNotFound, match="nowhere"):
        client.run()


# requirement: D1
def test_exit_of_a_handler_ends_run_in_the_thread_of_the_caller(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "exits", 1)
    client.send("exits", "1")

    @client.worker("exits", group="exits")
    def handle(message: Message) -> None:
        sys.exit(7)

    with pytest.raises(SystemExit, match="7"):
        client.run()
    assert client.groups.offsets("exits") == []


def test_coroutines_are_called_on_the_loop_of_the_application(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "coroutines", 2)

    async def main() -> tuple[list[int], int]:
        handled: list[int] = []
        at_once, most = 0, 0
        async with aio.Client(",".join(unbroken.urls)) as client:
            for number in range(40):
                await client.send("coroutines", str(number), partition=number % 2)
            loop, four = asyncio.get_running_loop(), asyncio.Barrier(4)

            @client.worker(
                "coroutines",
                group="c",
                concurrency=4,
                order="none",
                retry=Backoff("50ms"),
                value=int,
                session_timeout=SESSION,
            )
            async def handle(message: Message) -> None:
                nonlocal at_once, most
                assert asyncio.get_running_loop() is loop
                at_once += 1
                most = max(most, at_once)
                if most < 4 or four.n_waiting:
                    await four.wait()  # the first four wait for one another
                at_once -= 1
                if message.value == 7 and 7 not in handled:
                    handled.append(7)
                    raise LookupError("once more")
                handled.append(message.value)
                if len(handled) == 41:
                    client.stop()

            await client.run()
        return handled, most

    handled, most = asyncio.run(asyncio.wait_for(main(), LIMIT_S))
    assert sorted(handled) == sorted([*range(40), 7])
    assert most == 4


WORKER = """
import os, sys, time
from raftlog import Backoff, Client
with Client(sys.argv[1]) as client:
    @client.worker("crashes", group="crashes", concurrency=4, order="key", retry=Backoff("50ms"),
                   session_timeout=sys.argv[2], commit_interval="100ms")
    def handle(message):
        os.write(1, message.value + b"\\n")  # one call: of several threads
        time.sleep(0.01)  # so that a kill meets work
        if int(message.value) % 17 == 0 and message.headers == ():
            raise ValueError("a bad record")
    client.run()
print("end", flush=True)
"""


# requirement: D2 A7
def test_workers_that_are_killed_or_stopped_lose_nothing(unbroken: Cluster, client: Client) -> None:
    """Each gets records that no other has had: however late the signal comes, there is a line before it."""
    create_topic(unbroken.urls[0], "crashes", 4)
    command = [sys.executable, "-P", "-c", WORKER, ",".join(unbroken.urls)]
    handled: list[str] = []
    everything: set[str] = set()
    for end, session in (signal.SIGKILL, "3s"), (signal.SIGHUP, SESSION), (signal.SIGTERM, SESSION):
        with client.producer("crashes") as producer:
            for number in range(len(everything), len(everything) + 200):
                producer.send(str(number), key=str(number % 40))
                everything.add(str(number))
        with subprocess.Popen([*command, session], stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            is_told, before = False, len(handled)
            for line in worker.stdout:
                handled.append(line.strip())
                is_enough = (
                    everything <= {*handled} if end is signal.SIGTERM else len(handled) >= before + 100
                )
                if not is_told and is_enough:
                    worker.send_signal(end)
                    is_told = True
        assert worker.returncode == (-end if end is signal.SIGKILL else 0)
        assert (handled[-1] == "end") is (end is not signal.SIGKILL)
    assert everything <= {*handled}
    assert sum(committed(client, "crashes", "crashes").values()) == 600
