"""Measures Kafka with confluent-kafka: transactions, and equal records without transactions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from confluent_kafka import Producer

from api.cli.closed_loop import Measured, measured
from bench.kafka import KafkaCluster

TIMEOUT_S = 30.0

Send = Callable[[], None]


async def run(
    cluster: KafkaCluster,
    topic: str,
    values: list[tuple[int, bytes]],
    *,
    producers: int,
    seconds: float,
    in_transactions: bool,
) -> Measured:
    """Run a closed loop of producers, each on a thread.

    Each producer sends ``values``, by partition, and then waits for the commit of the transaction, or without
    transactions for the acknowledgements of all records.
    """
    make = _transactional if in_transactions else _plain
    senders = await asyncio.gather(
        *(asyncio.to_thread(make, cluster.bootstrap, topic, values, number) for number in range(producers))
    )
    latencies: list[float] = []
    began = time.perf_counter()
    threads = [
        threading.Thread(target=_loop, args=(send, latencies, began + seconds), name=f"producer-{number}")
        for number, send in enumerate(senders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    took_s = time.perf_counter() - began
    return measured(latencies, records=len(values) * len(latencies), took_s=took_s)


def _loop(send: Send, latencies: list[float], ends_at: float) -> None:
    while (sent := time.perf_counter()) < ends_at:
        send()
        latencies.append(time.perf_counter() - sent)


def _plain(bootstrap: str, topic: str, values: list[tuple[int, bytes]], number: int) -> Send:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
    )

    def send() -> None:
        for partition, value in values:
            producer.produce(topic, value, partition=partition)
        if producer.flush(TIMEOUT_S):
            raise RuntimeError("Kafka did not acknowledge records in time")

    send()  # warm
    return send


def _transactional(bootstrap: str, topic: str, values: list[tuple[int, bytes]], number: int) -> Send:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 1}
    )
    producer.init_transactions(TIMEOUT_S)

    def send() -> None:
        producer.begin_transaction()
        for partition, value in values:
            producer.produce(topic, value, partition=partition)
        producer.commit_transaction(TIMEOUT_S)

    send()  # warm
    return send
