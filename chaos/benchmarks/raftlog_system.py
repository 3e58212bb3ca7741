"""raftlog itself as a system under load: real broker processes, prebuilt batches over raw HTTP.

The client here writes one prebuilt request and reads until the answer's end; it neither builds
records nor parses answers, so that the brokers are the limit. The Python client is measured apart.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types

TOPIC = "bench"


class HttpConnection(asyncio.Protocol):
    """One keep-alive connection that sends the same request over and over."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._answer = b""
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports have the methods without being of the class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Wait for the end of the answer; only its status is looked at."""
        self._answer += data
        head_end = self._answer.find(b"\r\n\r\n")
        if head_end < 0 or self._done is None:
            return
        length_at = self._answer.lower().find(b"content-length:")
        length = int(self._answer[length_at + 15 : self._answer.find(b"\r\n", length_at)])
        if len(self._answer) < head_end + 4 + length:
            return
        answer, self._answer = self._answer, b""
        if self._done.done():
            return
        if answer.startswith(b"HTTP/1.1 200"):
            self._done.set_result(None)
        else:
            self._done.set_exception(RuntimeError(answer[:500].decode(errors="replace")))

    def connection_lost(self, error: Exception | None) -> None:
        """Whoever waits is told."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the broker closed the connection"))

    async def send(self) -> None:
        """One request and its answer."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        await self._done

    async def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


class RaftlogSystem:
    """Three brokers; stream n is partition n of one topic."""

    name = "raftlog (fsynced on a majority)"

    def __init__(self, directory: Path, *, brokers: int = 3) -> None:
        self.cluster = Cluster(directory, brokers=brokers)

    async def start(self, streams: int) -> None:
        """Start the brokers and create the topic."""
        await asyncio.to_thread(self.cluster.start)
        body = json.dumps({"name": TOPIC, "partitions": streams, "replication_factor": 3}).encode()
        await asyncio.to_thread(self._post, "/v1/topics", body)
        for stream in range(streams):
            await asyncio.to_thread(self.cluster.leader, TOPIC, stream)

    async def connect(self, stream: int, records: int, record_bytes: int) -> HttpConnection:
        """A connection to the partition's leader."""
        leader = await asyncio.to_thread(self.cluster.leader, TOPIC, stream)
        url = urlsplit(self.cluster.url(leader))
        batch = build_batch([Record(b"x" * record_bytes)] * records, codec=Codec.NONE, timestamp_ms=0)
        request = (
            f"POST /v1/topics/{TOPIC}/partitions/{stream}/records?route=none HTTP/1.1\r\n"
            f"Host: {url.netloc}\r\nContent-Type: {media_types.BATCH}\r\nContent-Length: {len(batch)}\r\n\r\n"
        ).encode() + batch
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: HttpConnection(request), url.hostname, url.port)
        return connection

    async def stop(self) -> None:
        """Stop the brokers."""
        await asyncio.to_thread(self.cluster.__exit__, None, None, None)

    def _post(self, path: str, body: bytes) -> None:
        request = urllib.request.Request(
            self.cluster.urls[0] + path, body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=20).close()
