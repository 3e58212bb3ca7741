"""Reading one partition: chunks from a position, following the end, and finding offsets.

Decides: how a position is written in a request and when a read is tried again. Leaves to others:
decoding (``messages``) and finding the leader (``metadata``). No position is kept here: a read is a
function of its arguments, so it can always be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime

from raftlog.client.leader_watch import ask_leader
from raftlog.client.messages import Chunk, Message, read_messages
from raftlog.client.metadata import Metadata
from raftlog.client.options import Duration, milliseconds
from raftlog.client.retries import pause_s
from raftlog.client.session import Reply, Session
from raftlog.client.values import timestamp_ms
from raftlog.errors import RaftlogError, UnknownTopic
from raftlog.wire import bodies, headers, paths

CHUNK_BYTES = 1 << 20
TAIL_WAIT_MS = 30_000
_PATIENCE_S = 5.0  # of silence, which is usual here, before others are asked who leads now
Position = int | str | datetime
"""An offset, ``"earliest"``, ``"latest"``, a time with a zone, or ``-100`` for the last 100."""


class AsyncPartition:
    """One partition of one topic, read from its leader."""

    def __init__(self, session: Session, metadata: Metadata, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self._session = session
        self._metadata = metadata

    async def read(
        self,
        offset: Position = "earliest",
        *,
        limit: int | None = None,
        max_bytes: int = CHUNK_BYTES,
        wait: Duration = 0,
    ) -> Chunk:
        """All messages from a position on, up to ``limit`` messages or about ``max_bytes``.

        With nothing there it waits up to ``wait`` for the first and may then come back empty. Raises
        ``OffsetOutOfRange`` outside the log and ``CorruptBatch`` rather than damaged messages.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; ask for one message at least")
        clock = self._session.clock
        start = offset if isinstance(offset, int) and offset >= 0 else await self.offsets(offset)
        wait_ms = milliseconds("wait", wait)
        ends_at = clock.monotonic() + wait_ms / 1_000
        while True:
            chunk = await self._fetch(start, max_bytes, wait_ms)
            if chunk.messages or chunk.next_offset <= start:
                return chunk if limit is None else _first(chunk, limit)
            start = chunk.next_offset  # nothing there but records of brokers
            wait_ms = max(0, round((ends_at - clock.monotonic()) * 1_000))

    async def tail(
        self, offset: Position = "latest", *, max_bytes: int = CHUNK_BYTES
    ) -> AsyncGenerator[Message, None]:
        """Every message from a position on, for ever; by default those that come from now on."""
        async for chunk in self.chunks(offset, max_bytes=max_bytes):
            for message in chunk.messages:
                yield message

    async def chunks(
        self, offset: Position = "latest", *, max_bytes: int = CHUNK_BYTES
    ) -> AsyncGenerator[Chunk, None]:
        """The same in chunks, none of them empty."""
        at = offset if isinstance(offset, int) and offset >= 0 else await self.offsets(offset)
        while True:
            chunk = await self._fetch(at, max_bytes, TAIL_WAIT_MS)
            at = chunk.next_offset
            if chunk.messages:
                yield chunk

    async def offsets(self, at: Position = "latest") -> int:
        """The offset of a position. ``"latest"`` is one past the newest message; a time, the first since."""
        path = paths.partition_offsets(self.topic, self.number)
        reply = await self._session.ask_any("GET", f"{path}?at={_position(at)}")
        return reply.read(bodies.OffsetBody).offset

    async def _fetch(self, offset: int, max_bytes: int, wait_ms: int) -> Chunk:
        path = paths.partition_records(self.topic, self.number)
        query = f"?offset={offset}&max_bytes={max_bytes}&wait={wait_ms}ms&route=none"
        reply = await self._ask_leader(path + query, wait_ms / 1_000)
        messages = (
            read_messages(self.topic, self.number, reply.body, first_offset=offset) if reply.body else []
        )
        return Chunk(
            messages,
            reply.number(headers.NEXT_OFFSET, offset),
            reply.number(headers.HIGH_WATERMARK),
            reply.number(headers.LOG_START_OFFSET),
            reply.number(headers.LEADER_EPOCH),
        )

    async def _ask_leader(self, path: str, wait_s: float) -> Reply:
        session, metadata = self._session, self._metadata
        clock = session.clock
        deadline = clock.monotonic() + session.retry_timeout_s + wait_s
        attempts = 0
        while True:
            try:
                leader = await metadata.leader_of(self.topic, self.number)
                return await ask_leader(
                    session,
                    metadata,
                    self.topic,
                    self.number,
                    leader,
                    "GET",
                    path,
                    patience_s=_PATIENCE_S,
                    timeout_s=session.request_timeout_s + wait_s,
                )
            except RaftlogError as error:
                attempts += 1
                metadata.correct(self.topic, self.number, error)
                if isinstance(error, UnknownTopic):
                    metadata.forget(self.topic)
                pause = pause_s(error, attempts, session.rng)
                if not error.retryable or not session.is_open or clock.monotonic() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)


def _position(at: Position) -> str:
    if isinstance(at, datetime):
        return f"timestamp:{timestamp_ms(at)}"
    if isinstance(at, int) and not isinstance(at, bool):
        return str(at)
    if at in ("earliest", "latest"):
        return str(at)
    raise ValueError(
        f"{at!r} is no position; give an offset, 'earliest', 'latest', a datetime, or -100 for the last 100"
    )


def _first(chunk: Chunk, limit: int) -> Chunk:
    if len(chunk.messages) <= limit:
        return chunk
    return Chunk(
        chunk.messages[:limit],
        chunk.messages[limit].offset,
        chunk.high_watermark,
        chunk.log_start_offset,
        chunk.leader_epoch,
    )
