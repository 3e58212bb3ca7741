"""Measures consumers of Kafka groups in Python: ``aiokafka`` and ``confluent-kafka``.

Both clients have their defaults, except that they begin at the start of the topic. The topic is filled with
batches as large as those of raftlog's producer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer

from api.cli.closed_loop import Measured, measured
from bench.kafka import KafkaCluster

RECORDS_MAX = 500  # of one batch, as in raftlog's consumer
WAIT_S = 1.0
READ_S = 300.0  # longest time of a round
LINGER_MS = 20
BATCH_BYTES = 256 << 10


async def fill(cluster: KafkaCluster, topic: str, partitions: int, values: Sequence[bytes]) -> None:
    """Create the topic, and spread records with keys over its partitions."""
    await cluster.create(topic, partitions, {"retention.bytes": "-1"})
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES, acks="all"
    )
    await producer.start()
    try:
        for number, value in enumerate(values):
            await producer.send(topic, value, key=b"%d" % number)
        await producer.flush()
    finally:
        await producer.stop()


async def read_with_aiokafka(cluster: KafkaCluster, topic: str, group: str, records: int) -> Measured:
    """Measure an ``aiokafka`` consumer from its first batch to its last batch, as for all clients."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        found, counted, began, ends_at = 0, 0, 0.0, time.monotonic() + READ_S
        while found < records and time.monotonic() < ends_at:
            polled = await consumer.getmany(timeout_ms=int(WAIT_S * 1000), max_records=RECORDS_MAX)
            got = sum(map(len, polled.values()))
            found += got
            if began:
                counted += got
            elif got:
                began = time.perf_counter()
        took_s = time.perf_counter() - began
    finally:
        await consumer.stop()
    return measured([took_s / max(1, counted)], records=counted, took_s=took_s)


async def read_with_confluent(cluster: KafkaCluster, topic: str, group: str, records: int) -> Measured:
    """Measure a ``confluent-kafka`` consumer on a thread: the client blocks."""
    return await asyncio.to_thread(_read_blocking, cluster.bootstrap, topic, group, records)


def _read_blocking(servers: str, topic: str, group: str, records: int) -> Measured:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found, counted, began, ends_at = 0, 0, 0.0, time.monotonic() + READ_S
        while found < records and time.monotonic() < ends_at:
            got = len([each.value() for each in consumer.consume(RECORDS_MAX, WAIT_S) if not each.error()])
            found += got
            if began:
                counted += got
            elif got:
                began = time.perf_counter()
        took_s = time.perf_counter() - began
    finally:
        consumer.close()
    return measured([took_s / max(1, counted)], records=counted, took_s=took_s)


READERS = {
    "aiokafka on Kafka": read_with_aiokafka,
    "confluent-kafka on Kafka": read_with_confluent,
}
"""By name of the client: functions that read ``records`` records of a topic as a member of a group."""
