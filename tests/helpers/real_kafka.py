"""A real Kafka: one broker on loopback, with jars that Maven fetches into the cache once."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.structs import OffsetAndMetadata

from bench.kafka import fetch_jars
from chaos.ports import free_ports
from tests.helpers.real_cluster import eventually

PARTITIONS = range(3)
BEGAN_MS = 1_600_000_000_000
Copied = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
JARS = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
JAVA = ("java", "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
}


@contextmanager
def kafka_broker(folder: Path) -> Iterator[str]:
    """The address of a broker that runs within the block. Skips the test without Java, Maven or the jars."""
    jars = fetch_jars(JARS)
    if jars is None:
        pytest.skip("no Kafka here: it needs Java, Maven and a registry for Maven")
    port = free_ports(2)
    settings = folder / "kafka.properties"
    settings.write_text(_settings(folder, port))
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    java = [*JAVA, "-cp", f"{jars}/*"]
    with (folder / "kafka.log").open("wb") as log:
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)]
        environment = {**os.environ, "LC_ALL": "C"}
        subprocess.run(tool, stdout=log, stderr=log, env=environment, check=True)
        command = [*java, "kafka.Kafka", str(settings)]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            eventually(lambda: _listens(port), what="a Kafka broker that listens")
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait(20)


def _settings(folder: Path, port: int) -> str:
    places = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "log.dirs": str(folder / "kafka"),
    }
    return "".join(f"{name}={value}\n" for name, value in {**SETTINGS, **places}.items())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Kafka:
    """A broker, and what tests do with it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def create(self, topic: str, partitions: int = len(PARTITIONS), **config: str) -> str:
        """Create a topic; returns its address. Config keys have underscores."""
        settings = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in config.items()}}

        async def create(admin: AIOKafkaAdminClient) -> None:
            made = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
            assert [error[1] for error in made.topic_errors] == [0]

        self._with_admin(create)
        return f"kafka://{self.address}/{topic}"

    def send(self, topic: str, transactions: int, records: int = 20, partitions: range = PARTITIONS) -> None:
        """Transactions of records with everything that a record may have; each third is aborted."""

        async def send() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self.address, transactional_id=topic)
            await producer.start()
            for number in range(transactions):
                await producer.begin_transaction()
                for each in range(records):
                    await producer.send(
                        topic,
                        None if each % 5 == 4 else f"{number}-{each}".encode().ljust(100),
                        key=None if each % 5 == 3 else b"k%d" % each,
                        partition=partitions[each % len(partitions)],
                        headers=[("h", b"1"), ("h", None), ("", b"\xff")] if each % 2 else None,
                        timestamp_ms=BEGAN_MS + number,
                    )
                await (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)()
            await producer.stop()

        asyncio.run(send())

    def log(self, topic: str) -> list[tuple[int, Copied]]:
        """All committed records with their offsets."""

        async def read() -> list[tuple[int, Copied]]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.address, isolation_level="read_committed", enable_auto_commit=False
            )
            await consumer.start()
            targets = [TopicPartition(topic, number) for number in PARTITIONS]
            consumer.assign(targets)
            await consumer.seek_to_beginning()
            found = []
            ends = await consumer.end_offsets(targets)
            while any([await consumer.position(target) < ends[target] for target in targets]):
                for target, records in (await consumer.getmany(timeout_ms=100)).items():
                    found += [
                        (each.offset, (target.partition, each.timestamp, each.key, each.value, each.headers))
                        for each in records
                    ]
            await consumer.stop()
            return sorted(found, key=lambda each: (each[1][0], each[0]))

        return asyncio.run(read())

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group."""

        async def commit() -> None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.address, group_id=group, enable_auto_commit=False
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, number) for number in PARTITIONS])
            await consumer.commit(
                {TopicPartition(topic, number): OffsetAndMetadata(at, "") for number, at in offsets.items()}
            )
            await consumer.stop()

        asyncio.run(commit())

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records of a partition below an offset."""
        target = TopicPartition(topic, partition)
        self._with_admin(lambda admin: admin.delete_records({target: RecordsToDelete(before_offset=offset)}))

    def _with_admin(self, work: Callable[[AIOKafkaAdminClient], Awaitable[object]]) -> None:
        async def done() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
            await admin.start()
            await work(admin)
            await admin.close()

        asyncio.run(done())
