"""Runs Apache Kafka as a peer: three combined KRaft brokers on Java, with raw-frame clients.

The jars come from Maven Central into ``.cache/kafka``; without Java and Maven Kafka is omitted from the
report. One cluster serves as two systems with a topic each: one topic with Kafka's default, no fsync, the
other with ``flush.messages=1``, an fsync for each batch.
"""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from bench.kafka_wire import KafkaConnection, KafkaReader, create_topic, text
from bench.load import RETAINED_BYTES, SEGMENT_BYTES
from bench.maven import fetch
from chaos.ports import free_ports
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch

VERSION = "4.1.0"
NODES = 3
START_S = 60
JAVA_OPTIONS = ("-Xms512m", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


def fetch_jars(cache: Path) -> Path | None:
    """Fetch the jars once; return their directory. None without Java, Maven or a network."""
    group = "org.apache.kafka"
    artifacts = [(group, "kafka_2.13", VERSION), (group, "kafka-tools", VERSION)]
    return fetch(cache, f"kafka-{VERSION}", artifacts)


def new_cluster_id() -> str:
    """A random cluster id that does not begin with ``-``: Kafka's tool would read it as an option."""
    return "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def start_broker(
    folder: Path, settings: str, cluster_id: str, jars: Path, java_options: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Format the storage of a broker and start the broker.

    Its output is in the file ``log`` in ``folder``.
    """
    place = folder / "settings"
    place.write_text(settings)
    java = ["java", *java_options, "-cp", f"{jars}/*"]
    environment = {**os.environ, "LC_ALL": "C"}
    with (folder / "log").open("wb") as log:
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(place)]
        subprocess.run(tool, stdout=log, stderr=log, env=environment, check=True)
        return subprocess.Popen([*java, "kafka.Kafka", str(place)], stdout=log, stderr=log, env=environment)


class KafkaCluster:
    """The processes that both systems share; the first system starts them."""

    def __init__(self, directory: Path, jars: Path) -> None:
        self._directory = directory
        self._jars = jars
        self._processes: list[subprocess.Popen[bytes]] = []
        self._users = 0
        self._first_port = 0

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients of Kafka take them."""
        return ",".join(f"127.0.0.1:{self._first_port + node}" for node in range(NODES))

    async def start(self) -> None:
        """Format the directories and start the brokers; do nothing if they run."""
        self._users += 1
        if self._processes:
            return
        self._first_port = free_ports(2 * NODES)
        cluster_id = new_cluster_id()
        for node in range(NODES):
            await asyncio.to_thread(self._spawn, node, cluster_id)
        for node in range(NODES):
            await (await self.open(node)).close()

    async def stop(self) -> None:
        """Stop the brokers once neither system uses them."""
        self._users -= 1
        if self._users == 0:
            for process in self._processes:
                process.kill()
                process.wait(20)

    async def open(self, node: int) -> KafkaConnection:
        """A connection to a broker that may still be starting."""
        loop = asyncio.get_running_loop()
        for _ in range(START_S * 10):
            try:
                port = self._first_port + node
                _, connection = await loop.create_connection(KafkaConnection, "127.0.0.1", port)
                return connection
            except OSError:
                await asyncio.sleep(0.1)
        raise RuntimeError(f"Kafka did not start; see {self._directory}")

    async def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic; stream n is partition n, and broker n % 3 leads it."""
        settings = {
            "retention.bytes": str(RETAINED_BYTES),
            "retention.ms": "-1",  # the batches' timestamps are 0
            "segment.bytes": str(SEGMENT_BYTES),
            "min.insync.replicas": "2",
            "file.delete.delay.ms": "100",
            **config,
        }
        for _ in range(START_S):
            for node in range(NODES):  # perhaps only the controller's broker knows all others yet
                connection = await self.open(node)
                try:
                    if await create_topic(connection, topic, partitions, NODES, settings):
                        await asyncio.sleep(1)  # until the brokers have applied it
                        return
                finally:
                    await connection.close()
            await asyncio.sleep(1)
        raise RuntimeError(f"Kafka did not create {topic}; see {self._directory}")

    def _spawn(self, node: int, cluster_id: str) -> None:
        folder = self._directory / f"k{node}"
        folder.mkdir(parents=True)
        port, controller_port = self._first_port + node, self._first_port + NODES + node
        voters = ",".join(f"{n + 1}@127.0.0.1:{self._first_port + NODES + n}" for n in range(NODES))
        settings = (
            f"process.roles=broker,controller\nnode.id={node + 1}\ncontroller.quorum.voters={voters}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={folder / 'data'}\nlog.retention.check.interval.ms=2000\n"
            "offsets.topic.replication.factor=3\nnum.network.threads=3\nnum.io.threads=8\n"
        )
        self._processes.append(start_broker(folder, settings, cluster_id, self._jars, JAVA_OPTIONS))


class Kafka:
    """A system under load: the cluster with one kind of topic."""

    def __init__(self, cluster: KafkaCluster, *, flush_always: bool) -> None:
        self.name = "Kafka, flush.messages=1" if flush_always else "Kafka, default (no fsync)"
        self._cluster = cluster
        self._topic = "flushed" if flush_always else "unflushed"
        self._config = {"flush.messages": "1"} if flush_always else {}

    @property
    def pids(self) -> list[int]:
        return self._cluster.pids

    async def start(self, streams: int) -> None:
        """Start the brokers unless they run, and create the topic."""
        await self._cluster.start()
        await self._cluster.create(self._topic, streams, self._config)

    async def connect(self, stream: int, records: int, record_bytes: int) -> KafkaConnection:
        """A connection to the partition's leader."""
        connection = await self._cluster.open(stream % NODES)
        batch = build_batch([Record(b"x" * record_bytes)] * records, codec=Codec.NONE, timestamp_ms=0)
        connection.prepare(
            0,
            8,
            struct.pack(">hhi", -1, -1, 30_000)  # no transaction; acks=all; timeout
            + struct.pack(">i", 1)
            + text(self._topic)
            + struct.pack(">iii", 1, stream, len(batch))
            + batch,
            answer_error_at=4 + 2 + len(self._topic) + 8,
        )
        return connection

    async def follow(self, stream: int, *, from_start: bool) -> KafkaReader:
        """A long poll from the beginning or the end of the stream."""
        reader = KafkaReader(await self._cluster.open(stream % NODES), self._topic, stream)
        if not from_start:
            await reader.seek_end()
        return reader

    async def stop(self) -> None:
        """End the brokers if the other system has ended, too."""
        await self._cluster.stop()
