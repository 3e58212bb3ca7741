"""The partition of a record, the batch that it joins, and the batch that the sender takes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from raftlog.client.buffer import Buffer, PartitionQueue
from raftlog.client.options import Partitioner, producer_options
from raftlog.client.partitioners import Router
from raftlog.clock import SystemClock
from raftlog.errors import InvalidRecord, PartitionNotFound
from raftlog.records.builder import Record
from raftlog.records.keys import partition_for_key
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.virtual_client import VirtualClient

CHI_SQUARE_LIMIT = 27.9  # 9 degrees of freedom; above it with a chance of one in a thousand


def make_router(count: int, partitioner: Partitioner | str | None = None) -> tuple[Router, Buffer]:
    """A router over queues that nobody empties, with batches of some ten small records."""
    options = producer_options(partitioner=partitioner, batch_bytes=400, buffer_bytes=1 << 30)
    buffer = Buffer(options, SystemClock())
    router = Router("orders", buffer=buffer, rng=random.Random(7), partitioner=options.partitioner)
    router.set_queues([PartitionQueue("orders", number) for number in range(count)])
    return router, buffer


def spread(router: Router, buffer: Buffer, count: int) -> Counter[int]:
    """How many records without a key each partition gets."""
    found: Counter[int] = Counter()
    for _ in range(count):
        queue = router.route(None, b"x", None, 33)
        assert buffer.append(queue, Record(b"x"), 33, None) is not None
        found[queue.partition] += 1
    return found


def chi_square(found: Counter[int], partitions: int) -> float:
    """The distance from an even spread."""
    expected = found.total() / partitions
    return sum((found[number] - expected) ** 2 / expected for number in range(partitions))


@pytest.mark.parametrize("count", [1, 3, 10, 12])
def test_a_key_goes_where_every_kafka_client_sends_it(count: int) -> None:
    # requirement: K1
    router, _ = make_router(count)
    for number in range(200):
        key = b"key-%d" % number
        first, again = (router.route(key, None, None, 40).partition for _ in range(2))
        assert first == again == partition_for_key(key, count)


def test_keys_that_were_sent_before_spread_over_new_partitions_at_once() -> None:
    # requirement: K6
    router, _ = make_router(3)
    for count in (3, 5, 12):
        router.set_queues([PartitionQueue("orders", number) for number in range(count)])
        for number in range(200):
            key = b"key-%d" % number
            assert router.route(key, None, None, 40).partition == partition_for_key(key, count)


def test_more_keys_than_are_remembered_still_go_to_their_partitions() -> None:
    router, _ = make_router(5)
    for number in range(25_000):
        key = b"%d" % number
        assert router.route(key, None, None, 40).partition == partition_for_key(key, 5)


def test_without_a_key_a_batch_stays_together_and_batches_spread_evenly() -> None:
    # requirement: K2
    router, buffer = make_router(10)
    per_record = spread(router, buffer, 10_000)
    batches = Counter({queue.partition: len(queue.closed) for queue in router.queues})
    assert chi_square(batches, 10) < CHI_SQUARE_LIMIT
    assert all(len(batch.records) == 10 for queue in router.queues for batch in queue.closed)
    assert min(per_record.values()) > 700


def test_round_robin_gives_each_partition_its_turn() -> None:
    # requirement: K2
    router, buffer = make_router(10, "round_robin")
    found = spread(router, buffer, 10_000)
    assert set(found.values()) == {1_000}
    assert chi_square(found, 10) == 0


def test_a_function_of_the_user_decides_and_is_checked() -> None:
    # requirement: K3
    router, _ = make_router(4, lambda topic, key, value, count: len(value or b"") % (count + 1))
    assert router.route(b"k", b"12", None, 40).partition == 2
    with pytest.raises(PartitionNotFound, match="0 to 3"):
        router.route(b"k", b"1234", None, 40)
    wrong, _ = make_router(4, lambda topic, key, value, count: "1")  # type: ignore[arg-type, return-value]
    with pytest.raises(PartitionNotFound):
        wrong.route(b"k", b"1", None, 40)


async def test_keys_are_bytes_text_or_integers_and_values_bytes_text_or_json() -> None:
    # requirement: K4
    # requirement: K5
    async with fake_cluster(3) as cluster, VirtualClient(cluster.urls) as client:
        async with client.producer("orders") as producer:
            for key in (b"42", "42", 42):
                await producer.send({"id": 1}, key=key, headers={"source": "web"}, tags=["a", "b"])
            await producer.send("text", partition=0)
            await producer.send(None, partition=0)
            with pytest.raises(InvalidRecord, match="key"):
                await producer.send("x", key=1.5)  # type: ignore[arg-type]
            with pytest.raises(InvalidRecord, match="value"):
                await producer.send({1j})
            with pytest.raises(InvalidRecord, match="headers"):
                await producer.send("x", headers={"a": 1})  # type: ignore[dict-item]
            with pytest.raises(InvalidRecord, match="tags"):
                await producer.send("x", tags="created")
            with pytest.raises(PartitionNotFound):
                await producer.send("x", partition=3)
        number = partition_for_key(b"42", 3)
        stored = [one for one in cluster.partition(number).records() if one.key is not None]
        assert [(one.key, one.value) for one in stored] == [(b"42", b'{"id":1}')] * 3
        assert stored[0].headers == (("source", b"web"), ("raftlog.tag", b"a"), ("raftlog.tag", b"b"))
        plain = [one.value for one in cluster.partition(0).records() if one.key is None]
        assert plain == [b"text", None]


async def test_after_the_partition_count_has_grown_records_go_to_the_new_ones_too() -> None:
    # requirement: K6
    async with fake_cluster(2) as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer("orders", partitioner="round_robin", linger=0)
        await producer.send("x")
        cluster.topics["orders"] += [type(cluster.partition())() for _ in range(2)]
        await client._metadata.refresh("orders")
        await producer.flush()
        await producer.send("x")
        await producer.flush()
        for _ in range(8):
            await producer.send("x")
        await producer.close()
        assert all(cluster.partition(number).end >= 2 for number in range(4))


def test_a_batch_that_was_taken_is_no_longer_open() -> None:
    # requirement: P1
    buffer, queue = Buffer(producer_options(), SystemClock()), PartitionQueue("orders", 0)
    sent = buffer.append(queue, Record(b"first"), 37, None)
    assert sent is not None
    buffer.make_due(queue)
    assert buffer.take(queue, now=1.0) is sent[0]
    assert buffer.take(queue, now=1.0) is None
    later = buffer.append(queue, Record(b"second"), 38, None)
    assert later is not None
    assert later[0] is not sent[0]
    assert [record.value for record in sent[0].records] == [b"first"]


def test_a_buffer_is_full_from_a_refusal_until_half_of_it_is_free() -> None:
    # requirement: P6
    buffer, queue = Buffer(producer_options(buffer_bytes=1_000), SystemClock()), PartitionQueue("orders", 0)
    small, large = Record(b"small"), Record(b"large")
    first = buffer.append(queue, small, 400, None)
    assert not buffer.is_full
    assert buffer.append(queue, large, 700, None) is None
    assert buffer.is_full
    assert first is not None
    buffer.release(first[0])
    assert not buffer.is_full
    queue.open = None
    assert buffer.append_all(queue, [small, large], [400, 700]) == 1
    assert buffer.is_full
