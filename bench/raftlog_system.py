"""Runs raftlog as a system under load: real broker processes, prebuilt batches over raw HTTP."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from api.cli import raw_http
from api.cli.raw_http import HttpConnection, HttpReader
from bench.load import RETAINED_BYTES, SEGMENT_BYTES
from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch

TOPIC = "bench"
FETCH_BYTES: Final = 16 << 20  # the most that a broker sends at once by default
FAST_RETENTION: Final[Mapping[str, str]] = {"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "2000"}
"""Settings with a short retention interval, so that long rounds do not fill the disk."""


class RaftlogSystem:
    """The system under load: three brokers; stream n is partition n of one topic."""

    name = "raftlog (fsynced on a majority)"

    def __init__(
        self,
        directory: Path,
        *,
        retained_bytes: int = RETAINED_BYTES,
        environment: Mapping[str, str] = FAST_RETENTION,
    ) -> None:
        self.cluster = Cluster(directory, environment=environment)
        self._retained_bytes = retained_bytes

    @property
    def pids(self) -> list[int]:
        return [self.cluster.pid(broker) for broker in self.cluster.running]

    async def start(self, streams: int) -> None:
        """Start the brokers and create the topic."""
        await asyncio.to_thread(self.cluster.start)
        config = {"retention.bytes": self._retained_bytes, "segment.bytes": SEGMENT_BYTES}
        await self.create(TOPIC, streams, config)

    async def create(
        self, topic: str, partitions: int, config: dict[str, int] | None = None, preset: str | None = None
    ) -> None:
        """Create a topic and wait until all its partitions have leaders and followers."""
        fields = {"name": topic, "partitions": partitions, "replication_factor": 3}
        fields |= {"config": config or {}, "preset": preset}
        await asyncio.to_thread(self._create, fields, topic, partitions)

    async def connect(self, stream: int, records: int, record_bytes: int) -> HttpConnection:
        """A connection to the partition's leader."""
        url = await self.leader_url(stream)
        batch = build_batch([Record(b"x" * record_bytes)] * records, codec=Codec.NONE, timestamp_ms=0)
        return await raw_http.connect(url, raw_http.produce_request(url, TOPIC, stream, batch))

    async def follow(self, stream: int, *, from_start: bool) -> HttpReader:
        """A long poll from the beginning or the end of the partition."""
        url = await self.leader_url(stream)
        reader = HttpReader(await raw_http.connect(url), url, TOPIC, stream, fetch_bytes=FETCH_BYTES)
        await (reader.seek_start() if from_start else reader.seek_end())
        return reader

    async def leader_url(self, stream: int) -> str:
        """The URL of the partition's leader."""
        leader = await asyncio.to_thread(self.cluster.leader, TOPIC, stream)
        return self.cluster.url(leader)

    async def stop(self) -> None:
        await asyncio.to_thread(self.cluster.__exit__, None, None, None)

    def _create(self, fields: dict[str, object], topic: str, partitions: int) -> None:
        self._post("/v1/topics", json.dumps(fields).encode())
        deadline = time.monotonic() + 60 + partitions / 10
        while self._in_sync(topic) < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not every partition of {topic} has its replicas")
            time.sleep(0.2)

    def _in_sync(self, topic: str) -> int:
        """The number of partitions that have a leader, and all of whose replicas are in sync."""
        found, token = 0, ""
        while True:
            page = self.cluster.get(f"/v1/topics/{topic}/partitions?limit=1000{token}")
            items = page["items"]
            assert isinstance(items, list)
            found += sum(item["leader"] is not None and len(item["in_sync"]) == 3 for item in items)
            if page.get("next_page_token") is None:
                return found
            token = f"&page_token={page['next_page_token']}"

    def _post(self, path: str, body: bytes) -> None:
        content_type = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.cluster.urls[0] + path, body, content_type)
        urllib.request.urlopen(request, timeout=60).close()
