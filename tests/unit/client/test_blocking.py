"""The blocking client: the same over a thread of its own, and in a child process after a fork."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta

import pytest

import raftlog
from raftlog import Client, NotSent, RecordTooLarge, aio
from raftlog.client.forks import FORKED
from raftlog.client.portal import Portal
from raftlog.records.builder import Record
from raftlog.testing.waits import LIMIT_S, eventually
from tests.helpers.async_tests import beside
from tests.helpers.fake_broker import FakeCluster, Trouble, fake_cluster
from tests.helpers.whole_broker import TOPIC, whole_broker


def test_the_blocking_client_does_what_the_async_one_does() -> None:
    # requirement: P6
    with beside(fake_cluster(2)) as cluster, Client(cluster.urls) as client:
        assert client.topics.create("sales", partitions=2).name == "sales"
        assert [topic.name for topic in client.topics.list()] == ["orders", "sales"]
        assert client.cluster.describe().brokers == 1
        assert client.send("orders", {"id": 1}, key="u").offset == 0
        with client.producer("sales", linger="1ms") as producer:
            pending = [producer.send(str(number), partition=1) for number in range(100)]
            assert pending[7].result(timeout=f"{LIMIT_S:g}s").offset == 7
        assert all(one.done() and one.exception() is None for one in pending)
        partition = client.partition("sales", 1)
        assert partition.offset_at() == 100
        assert len(partition.read(40, limit=10)) == 10
        found = []
        for message in partition.tail("earliest"):
            found.append(message.offset)
            if len(found) == 100:
                break
        assert found == list(range(100))


def test_many_threads_share_a_producer_and_each_keeps_its_order() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        with client.producer("orders", batch_bytes=2_000, buffer_bytes=8_000, linger="1ms") as producer:
            cluster.trouble(*[Trouble.DROP_AFTER, Trouble.SLOW, Trouble.NONE] * 4)

            def work(name: int) -> None:
                for number in range(300):
                    producer.send(f"{name} {number}")

            threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        stored = [(value or b"").split() for value in cluster.partition().values()]
        assert len(stored) == 1_200
        for name in range(4):
            mine = [int(number) for owner, number in stored if int(owner) == name]
            assert mine == list(range(300))


def test_errors_come_out_of_result_and_of_the_block() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        cluster.trouble(Trouble.TOO_LARGE)
        told: list[object] = []
        with pytest.raises(ExceptionGroup):  # noqa: PT012, SIM117 - the block is what is tested
            with client.producer("orders", linger=0) as producer:
                pending = producer.send("x", on_ack=lambda receipt, error: told.append(error))
                with pytest.raises(RecordTooLarge):
                    pending.result()
        assert [type(error) for error in told] == [RecordTooLarge]


# requirement: D2
@pytest.mark.parametrize("takes_batches", [False, True])
def test_a_seek_of_another_partition_does_not_acknowledge_what_is_being_handled(takes_batches: bool) -> None:
    with beside(whole_broker(partitions=2)) as broker, Client(broker.url) as client:
        for partition in (0, 1):
            client.send(TOPIC, "x", partition=partition)
        with pytest.raises(ZeroDivisionError), client.consumer("g", TOPIC) as consumer:  # noqa: PT012
            first = next(consumer.batches())[0] if takes_batches else next(iter(consumer))
            consumer.seek(TOPIC, 1 - first.partition, 1)
            raise ZeroDivisionError
        committed = {each.partition: each.committed_offset for each in client.groups.offsets("g")}
        assert committed == {1 - first.partition: 1}


def test_a_result_can_be_waited_for_with_a_limit() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        cluster.trouble(Trouble.HANG_AFTER)
        producer = client.producer("orders", linger=0)
        pending = producer.send("x")
        with pytest.raises(TimeoutError):
            pending.result(timeout="20ms")
        with pytest.raises(TimeoutError):
            pending.exception(timeout=timedelta(milliseconds=1))
        with pytest.raises(ValueError, match="timeout is 5; write a duration with its unit"):
            pending.result(timeout=5)  # type: ignore[arg-type]
        producer.close("20ms")
        assert pending.done()


def interrupt_a_read(cluster: FakeCluster) -> None:
    """Ctrl-C, once a read waits for records."""

    def interrupt() -> None:
        eventually(lambda: cluster.waiting_reads, what="a read")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()


def test_a_client_may_be_closed_by_several_threads_while_others_use_it() -> None:
    # requirement: P6
    with beside(fake_cluster()) as cluster:
        client = Client(cluster.urls)
        producer, consumer = client.producer("orders"), client.consumer(None, assign=[("orders", 0)])
        ended: list[BaseException | None] = []

        def act(work: Callable[[], object]) -> None:
            try:
                work()
            except BaseException as error:
                ended.append(error)
            else:
                ended.append(None)

        reading = threading.Thread(
            target=act, args=(lambda: client.partition("orders", 0).read(0, wait="2m"),)
        )
        reading.start()
        eventually(lambda: cluster.waiting_reads, what="a read")
        closes = [client.close, client.close, producer.close, consumer.close, client.close, producer.close]
        threads = [threading.Thread(target=act, args=(close,)) for close in closes]
        for thread in threads:
            thread.start()
        for thread in (reading, *threads):
            thread.join(LIMIT_S)
        (error,) = (error for error in ended if error is not None)
        assert isinstance(error, raftlog.RaftlogError), "the read; no close"
        eventually(lambda: not cluster.waiting_reads, what="a server that has seen the end of the read")
        for close in closes:
            close()


def test_ctrl_c_interrupts_a_wait_and_the_client_still_closes() -> None:
    with beside(fake_cluster()) as cluster:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt), Client(cluster.urls) as client:  # noqa: PT012
            interrupt_a_read(cluster)
            client.partition("orders", 0).read(0, wait="2m")
        assert time.monotonic() - began < LIMIT_S
        with pytest.raises(NotSent):
            client.cluster.describe()
        client.close()


def test_ctrl_c_ends_a_tail() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        client.send("orders", "x")
        tail = client.partition("orders", 0).tail("earliest")
        assert next(tail).value == b"x"
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # the tail may read ahead
            interrupt_a_read(cluster)
            next(tail)


def test_ctrl_c_waits_for_the_end_of_the_step_that_it_interrupts() -> None:
    portal, began, ended = Portal(), threading.Event(), list[str]()

    async def source() -> AsyncGenerator[int, None]:
        try:
            yield 1
            began.set()
            await asyncio.sleep(2 * LIMIT_S)
        finally:
            await asyncio.sleep(0.05)  # as long as a request takes to end
            ended.append("source")

    def interrupt() -> None:
        began.wait(LIMIT_S)
        os.kill(os.getpid(), signal.SIGINT)

    steps = portal.iterated(source())
    assert next(steps) == 1
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert ended == ["source"]
    portal.close()


def test_a_client_on_its_own_thread_refuses_to_wait_for_itself() -> None:
    # requirement: P6
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        told: list[str] = []

        with client.producer("orders") as producer:

            def call_back(receipt: raftlog.Receipt | None, error: raftlog.RaftlogError | None) -> None:
                another = producer.send("y")
                for wait in (
                    client.cluster.describe,
                    lambda: another.result("5s"),
                    lambda: another.exception("5s"),
                ):
                    try:
                        wait()
                    except RuntimeError as refused:
                        told.append(str(refused))

            producer.send("x", on_ack=call_back).result(f"{LIMIT_S:g}s")
            eventually(lambda: len(told) == 3, what="the callback is over")
        assert ["own thread" in each for each in told] == [True] * 3
        assert cluster.partition().values() == [b"x", b"y"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_what_is_buffered_when_the_program_ends_is_still_sent(host: str) -> None:
    program = (
        "import sys; from raftlog import Client; "
        "Client(sys.argv[1]).producer('orders', linger='10s').send('x')"
    )
    with beside(fake_cluster()) as cluster:
        command = [sys.executable, "-W", "error", "-c", program, cluster.urls[0]]
        (broker,) = cluster.brokers.values()
        broker.url = broker.url.replace("127.0.0.1", host)  # that of the leader, whose name is not known yet
        ended = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert cluster.partition().values() == [b"x"]


def test_a_closed_producer_takes_nothing_from_other_threads() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        producer = client.producer("orders", linger=0)
        pending = []

        def work() -> None:
            try:
                while True:
                    pending.append(producer.send("x"))
            except NotSent:
                return

        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: len(pending) >= 100, what="records of the thread")
        producer.close("1s")
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        assert all(one.done() for one in pending)


def test_closing_ends_the_thread() -> None:
    before = threading.active_count()
    with beside(fake_cluster()) as cluster:
        client = Client.from_url(cluster.urls[0])
        client.cluster.describe()
        client.close("1s")
    assert threading.active_count() == before


# Jobs, queues and receipts have other attributes where they block.
FACES = {name for name in aio.__all__ if getattr(aio, name) is not getattr(raftlog, name, None)}
FACES -= {"Job", "PendingReceipt", "Queue"}


@pytest.mark.parametrize("name", sorted(FACES))
def test_both_faces_have_the_same_methods_and_parameters(name: str) -> None:
    asynchronous, blocking = getattr(aio, name), getattr(raftlog, name)
    only_async = {
        "Client": {"consumer_core", "open"},
        "Producer": {
            "append",
            "append_all",
            "end_in_child",
            "failure",
            "incarnation",
            "is_closed",
            "make_ready",
            "raise_errors",
            "send_nowait",
        },
        "Transaction": {"check_open", "records"},
    }
    methods = {
        method
        for method in dir(asynchronous)
        if not method.startswith("_") and method not in only_async.get(name, set())
    }
    assert methods == {method for method in dir(blocking) if not method.startswith("_")}
    for method in methods:
        if isinstance(getattr(asynchronous, method), property):
            continue
        of_async, of_blocking = (
            list(inspect.signature(getattr(face, method)).parameters.items())
            for face in (asynchronous, blocking)
        )
        assert [(key, value.default) for key, value in of_async] == [
            (key, value.default) for key, value in of_blocking
        ]
        delegate = getattr(getattr(blocking, method), "__wrapped__", None)
        if getattr(delegate, "__qualname__", "") != f"{name}.{method}":  # of ``settings_of``
            assert delegate in (None, getattr(asynchronous, method)), "it waits for the method of its name"


def test_public_names_are_sorted_and_there() -> None:
    for module in (raftlog, aio):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


def in_a_child(work: Callable[[], object]) -> str:
    """The error that ``work`` raises in a forked process, as text; empty if it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(round(LIMIT_S))
        said = ""
        try:
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "the child waits for ever"
    return said


# requirement: P6
@pytest.mark.parametrize("call", ["client", "send", "send_all", "flush", "producer"])
def test_a_client_of_another_process_refuses_calls(call: str) -> None:
    with (
        beside(fake_cluster()) as cluster,
        Client(cluster.urls) as client,
        client.producer("orders") as producer,
    ):
        producer.send("parent").result(f"{LIMIT_S:g}s")
        calls: dict[str, Callable[[], object]] = {
            "client": lambda: client.send("orders", "child"),
            "send": lambda: producer.send("child"),
            "send_all": lambda: producer.send_all([Record(b"child")]),
            "flush": producer.flush,
            "producer": lambda: client.producer("orders"),
        }
        assert in_a_child(calls[call]) == f"RuntimeError: {FORKED}"
        assert producer.send("parent").result(f"{LIMIT_S:g}s").offset >= 0
    assert cluster.partition().values().count(b"child") == 0


# requirement: P6
@pytest.mark.parametrize("wait", ["result", "exception"])
def test_a_pending_record_of_another_process_has_no_outcome_here(wait: str) -> None:
    with (
        beside(fake_cluster()) as cluster,
        Client(cluster.urls) as client,
        client.producer("orders", linger="10s") as producer,
    ):
        client.send("orders", "before")
        pending = producer.send("pending")
        with producer._core._buffer._lock:  # as another thread may have held it
            assert in_a_child(getattr(pending, wait)) == f"RuntimeError: {FORKED}"
        producer.flush()
        assert pending.result(f"{LIMIT_S:g}s").offset == 1
        assert in_a_child(getattr(pending, wait)) == ""  # its outcome was known before


# requirement: D2
@pytest.mark.parametrize("take", ["poll", "batches"])
def test_records_that_a_consumer_has_taken_stay_in_its_process(take: str) -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        for value in "0", "1", "2":
            client.send("orders", value)
        with client.consumer(None, assign=[("orders", 0)]) as consumer:
            first = consumer.poll("5s")
            assert first is not None
            act = consumer.poll if take == "poll" else lambda: next(consumer.batches())
            assert in_a_child(act) == f"RuntimeError: {FORKED}"
            assert [message and message.offset for message in (consumer.poll(), consumer.poll())] == [1, 2]


# requirement: P6
def test_closing_parts_of_a_client_of_another_process_does_nothing() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        client.send("orders", "parent")
        producer, tail = client.producer("orders"), client.partition("orders", 0).tail("earliest")
        next(tail)
        with client._portal._lock:  # as another thread may have held it
            for close in (client.close, producer.close, tail.close):
                assert in_a_child(close) == ""
        client.send("orders", "parent")
