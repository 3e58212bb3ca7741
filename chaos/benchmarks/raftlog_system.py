"""raftlog itself as a system under load: real broker processes, prebuilt batches over raw HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

from chaos.benchmarks import http_load
from chaos.benchmarks.http_load import HttpConnection, HttpReader
from chaos.benchmarks.load import RETAINED_BYTES, SEGMENT_BYTES
from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch

TOPIC = "bench"


class RaftlogSystem:
    """Three brokers; stream n is partition n of one topic."""

    name = "raftlog (fsynced on a majority)"

    def __init__(self, directory: Path, *, brokers: int = 3) -> None:
        environment = {"RAFTLOG_TIMING__RETENTION_CHECK_MS": "2000"}
        self.cluster = Cluster(directory, brokers=brokers, environment=environment)

    @property
    def pids(self) -> list[int]:
        """Process ids of the brokers."""
        return [self.cluster.pid(broker) for broker in self.cluster.running]

    async def start(self, streams: int) -> None:
        """Start the brokers and create the topic."""
        await asyncio.to_thread(self.cluster.start)
        config = {"retention.bytes": RETAINED_BYTES, "segment.bytes": SEGMENT_BYTES}
        await self.create(TOPIC, streams, config)

    async def create(self, topic: str, partitions: int, config: dict[str, int] | None = None) -> None:
        """Create a topic and wait until its partitions have leaders."""
        fields = {"name": topic, "partitions": partitions, "replication_factor": 3, "config": config or {}}
        await asyncio.to_thread(self._post, "/v1/topics", json.dumps(fields).encode())
        for partition in range(partitions):
            await asyncio.to_thread(self.cluster.leader, topic, partition)

    async def connect(self, stream: int, records: int, record_bytes: int) -> HttpConnection:
        """A connection to the partition's leader."""
        url = await self.leader_url(stream)
        batch = build_batch([Record(b"x" * record_bytes)] * records, codec=Codec.NONE, timestamp_ms=0)
        return await http_load.connect(url, http_load.produce_request(url, TOPIC, stream, batch))

    async def follow(self, stream: int, *, from_start: bool) -> HttpReader:
        """A long poll from the beginning or the end of the partition."""
        url = await self.leader_url(stream)
        reader = HttpReader(await http_load.connect(url), url, TOPIC, stream)
        await (reader.seek_start() if from_start else reader.seek_end())
        return reader

    async def leader_url(self, stream: int) -> str:
        """Where the partition is led."""
        leader = await asyncio.to_thread(self.cluster.leader, TOPIC, stream)
        return self.cluster.url(leader)

    async def stop(self) -> None:
        """Stop the brokers."""
        await asyncio.to_thread(self.cluster.__exit__, None, None, None)

    def _post(self, path: str, body: bytes) -> None:
        content_type = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.cluster.urls[0] + path, body, content_type)
        urllib.request.urlopen(request, timeout=60).close()
