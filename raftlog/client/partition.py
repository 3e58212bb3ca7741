"""Reads one partition: chunks from a position, new messages at its end, and the offset of a position.

Decides: the form of a position in a request and when a read is retried. Leaves to others: decoding
(``messages``), finding the leader (``metadata``) and the replica in the reader's rack (``closest``). An
object here stores no position: the result of a read depends only on its arguments and the log, so a read can
always be repeated. Only the average message size is stored, to estimate the bytes of ``limit`` messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Unpack
from urllib.parse import quote

from raftlog import tracing
from raftlog.client.closest import ClosestReplica
from raftlog.client.leader_watch import ask_leader
from raftlog.client.messages import DECODED_BYTES_MAX, Chunk, Decoders, Message, read_messages
from raftlog.client.metadata import Metadata
from raftlog.client.options import (
    BATCH_BYTES_MAX,
    Duration,
    ReaderPreset,
    TagSettings,
    milliseconds,
    positive,
    reader_preset,
    seconds,
)
from raftlog.client.reader_place import ReaderPlace
from raftlog.client.replies import Reply
from raftlog.client.retries import pause_s
from raftlog.client.session import Session
from raftlog.client.settings import settings_of
from raftlog.client.values import timestamp_ms
from raftlog.errors import RaftlogError, TopicNotFound
from raftlog.records.batch import parse_header
from raftlog.records.tags import TagSelection
from raftlog.wire import headers, partitions, records
from raftlog.wire.tags import FIELDS, SEPARATOR, checked_selection

CHUNK_BYTES = ReaderPreset().max_bytes
TAIL_WAIT_MS = 30_000
_OVER_MAX_BYTES = BATCH_BYTES_MAX + (64 << 10)  # a broker sends whole batches, at least one
_MESSAGE_BYTES = 1_024.0  # estimated size of a message before the first response
_MARGIN = 1.25
_PATIENCE_S = 5.0  # of silence, normal for a long poll, before other brokers are asked for the leader
Position = int | str | datetime
"""An offset, ``"earliest"``, ``"latest"``, a time with a zone, or ``-100`` for the last 100."""
Undecodable = Literal["fail", "skip"]
Isolation = Literal["committed", "uncommitted"]


class TailSettings(TagSettings, total=False):
    """Options of ``tail`` and ``chunks`` of a partition. ``AsyncPartition.chunks`` has the defaults."""

    preset: str | None  # None: none; "latency" and "throughput" have other defaults of the next two
    linger: Duration | None  # None: 0, or of the preset; a wait at the end of the partition for more records
    max_bytes: int | None  # None: 1 MiB, or of the preset; of one fetch
    undecodable: Undecodable  # "fail": an error for a stored batch that cannot be decoded; "skip" skips it


@dataclass(frozen=True, slots=True)
class _Part:
    """Messages and size of one fetch, or of several successive fetches."""

    chunk: Chunk
    body_bytes: int
    decoded_bytes: int
    is_whole: bool  # the chunk has everything that was fetched

    @property
    def has_content(self) -> bool:
        return bool(self.chunk.messages or self.chunk.skipped)

    def then(self, part: _Part) -> _Part:
        chunk = replace(
            part.chunk,
            messages=self.chunk.messages + part.chunk.messages,
            skipped=self.chunk.skipped + part.chunk.skipped,
        )
        return _Part(
            chunk, self.body_bytes + part.body_bytes, self.decoded_bytes + part.decoded_bytes, part.is_whole
        )

    def is_enough(self, limit: int | None, max_bytes: int) -> bool:
        """True if the read is complete. Without a ``limit`` one response is enough."""
        return (
            limit is None
            or len(self.chunk) >= limit
            or not self.is_whole
            or self.chunk.is_up_to_date
            or self.body_bytes >= max_bytes
            or self.decoded_bytes >= DECODED_BYTES_MAX
        )


class AsyncPartition:
    """One partition of one topic, read from its leader, or by a client with a rack from a replica nearby."""

    def __init__(
        self,
        session: Session,
        metadata: Metadata,
        topic: str,
        number: int,
        decoders: Decoders,
        place: ReaderPlace | None = None,
    ) -> None:
        self.topic = topic
        self.number = number
        self._session = session
        self._metadata = metadata
        self._decoders = decoders
        self._closest = None if place is None else ClosestReplica(session, metadata, topic, number, place)
        self._message_bytes = _MESSAGE_BYTES  # of the newest response

    async def read(
        self,
        position: Position = "earliest",
        *,
        limit: int | None = None,
        max_bytes: int = CHUNK_BYTES,
        wait: Duration = 0,
        undecodable: Undecodable = "fail",
        isolation: Isolation = "committed",
        tags: Sequence[str] | None = None,
        tags_all: Sequence[str] | None = None,
        tags_none: Sequence[str] | None = None,
        min_offset: int | None = None,
    ) -> Chunk:
        """Read all messages from a position on, up to ``limit`` messages or about ``max_bytes``.

        At the end of the partition the call waits up to ``wait``, and may return an empty chunk. A chunk ends
        before a stored batch that cannot be decoded, and the next read raises ``UndecodableBatch``; with
        ``undecodable="skip"`` such batches are skipped. ``isolation="uncommitted"`` also returns messages of
        open and aborted transactions. With ``tags``, ``tags_all`` and ``tags_none`` (any, all, none of these)
        other messages are skipped: ``next_offset`` is past them, and a chunk without messages may end before
        the partition's end. With ``min_offset``, one past the offset of a receipt, only a replica with all
        records below it answers. Raises ``OffsetOutOfRange`` outside the log, ``CorruptBatch`` for damage.
        """
        skips = _is_skipping(undecodable)
        _check_isolation(isolation)
        selection = checked_selection(tags, tags_all, tags_none)
        _check_min_offset(min_offset)
        count_left = None if limit is None else positive("limit", limit)
        bytes_left, wait_ms = positive("max_bytes", max_bytes), milliseconds("wait", wait)
        clock = self._session.clock
        at = await self._start(position)
        ends_at = clock.monotonic() + wait_ms / 1_000
        read = _Part(Chunk([], at, -1, -1, -1), 0, 0, is_whole=True)
        while True:
            wanted = bytes_left if count_left is None else min(bytes_left, self._bytes_of(count_left))
            try:
                part = await self._fetch(
                    at,
                    wanted,
                    wait_ms,
                    limit=count_left,
                    skips=skips,
                    isolation=isolation,
                    tags=selection,
                    min_offset=min_offset,
                )
            except RaftlogError:
                if read.has_content:
                    return read.chunk  # the next read reports the error again
                raise
            read = read.then(part)
            if part.chunk.next_offset <= at or (read.has_content and read.is_enough(limit, max_bytes)):
                return read.chunk
            if selection is not None and not read.has_content and clock.monotonic() >= ends_at:
                return read.chunk  # all messages were skipped, and many more may follow
            at = read.chunk.next_offset
            bytes_left = max(1, max_bytes - read.body_bytes)
            count_left = None if limit is None else limit - len(read.chunk)
            wait_ms = 0 if read.has_content else max(0, round((ends_at - clock.monotonic()) * 1_000))

    async def chunks(
        self,
        position: Position = "latest",
        *,
        preset: str | None = None,
        linger: Duration | None = None,
        max_bytes: int | None = None,
        undecodable: Undecodable = "fail",
        tags: Sequence[str] | None = None,
        tags_all: Sequence[str] | None = None,
        tags_none: Sequence[str] | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """The messages of ``tail``, in chunks. Each chunk has at least one message or skipped offset."""
        skips = _is_skipping(undecodable)
        base = reader_preset(preset, linger=linger, max_bytes=max_bytes)
        bytes_max, linger_s = positive("max_bytes", base.max_bytes), seconds("linger", base.linger)
        wanted = checked_selection(tags, tags_all, tags_none)
        at = await self._start(position)
        while True:
            chunk = (await self._fetch(at, bytes_max, TAIL_WAIT_MS, skips=skips, tags=wanted)).chunk
            at = chunk.next_offset
            if chunk.messages or chunk.skipped:
                yield chunk
            if linger_s and chunk.is_up_to_date:
                await asyncio.sleep(linger_s)

    @settings_of(TailSettings, chunks)
    async def tail(
        self, position: Position = "latest", **settings: Unpack[TailSettings]
    ) -> AsyncGenerator[Message, None]:
        """Every message from a position on, without end; by default new messages only."""
        async for chunk in self.chunks(position, **settings):
            for message in chunk.messages:
                yield message

    async def offset_at(self, position: Position = "latest") -> int:
        """The offset of a position; for a time, the offset of the first message since then.

        ``"latest"`` is the end of the readable messages: the first message of the oldest open transaction, or
        one past the newest message.
        """
        found = await self._session.call(
            partitions.OFFSET_AT,
            query={"at": written_position(position)},
            topic=self.topic,
            partition=self.number,
        )
        return found.offset

    async def _start(self, position: Position) -> int:
        return position if type(position) is int and position >= 0 else await self.offset_at(position)

    def _bytes_of(self, count: int) -> int:
        """The estimated bytes of ``count`` messages in a response.

        After a low estimate, ``read`` fetches again.
        """
        return int(_MARGIN * self._message_bytes * count) + 1

    async def _fetch(
        self,
        offset: int,
        max_bytes: int,
        wait_ms: int,
        *,
        limit: int | None = None,
        skips: bool = False,
        isolation: Isolation = "committed",
        tags: TagSelection | None = None,
        min_offset: int | None = None,
    ) -> _Part:
        path = records.FETCH.at(topic=self.topic, partition=self.number)
        query = f"?offset={offset}&max_bytes={max_bytes}"
        if isolation != "committed":
            query += f"&isolation={isolation}"
        query += _written(tags)
        if min_offset:
            query += f"&min_offset={min_offset}"
        began_ns = tracing.now_ns()
        reply = await self._ask(path + query, offset, wait_ms, max_bytes + _OVER_MAX_BYTES)
        body = reply.body
        following = reply.number(headers.NEXT_OFFSET, offset)
        found = read_messages(
            self.topic,
            self.number,
            body,
            first_offset=offset,
            next_offset=following,
            limit=limit,
            skips_undecodable=skips,
            tags=tags,
        )
        found = self._decoders.decoded(found)
        tracing.fetched(self.topic, self.number, found.messages, began_ns)
        if body and tags is None:
            self._message_bytes = len(body) / max(1, following - parse_header(body).base_offset)
        chunk = Chunk(
            found.messages,
            found.next_offset,
            reply.number(headers.HIGH_WATERMARK),
            reply.number(headers.LOG_START_OFFSET),
            reply.number(headers.LEADER_EPOCH),
            found.skipped,
            reply.number(headers.LAST_STABLE_OFFSET),
        )
        return _Part(chunk, len(body), found.size_bytes, is_whole=found.next_offset == following)

    async def _ask(self, path: str, offset: int, wait_ms: int, answer_bytes_max: int) -> Reply:
        """The response of the closest replica; if that replica cannot serve, the leader's response."""
        if self._closest is not None:
            ends_at = self._session.clock.monotonic() + wait_ms / 1_000
            reply = await self._closest.ask(path, offset, wait_ms, answer_bytes_max)
            if reply is not None:
                return reply
            wait_ms = max(0, round((ends_at - self._session.clock.monotonic()) * 1_000))
        return await self._ask_leader(f"{path}&wait={wait_ms}ms", wait_ms / 1_000, answer_bytes_max)

    async def _ask_leader(self, path: str, wait_s: float, answer_bytes_max: int) -> Reply:
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
                    answer_bytes_max=answer_bytes_max,
                )
            except RaftlogError as error:
                attempts += 1
                metadata.correct(self.topic, self.number, error)
                if isinstance(error, TopicNotFound):
                    metadata.forget(self.topic)
                pause = pause_s(error, attempts, session.rng)
                if session.gives_up(error) or clock.monotonic() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)


def written_position(position: Position) -> str:
    """The text of a position in the HTTP API. Raises ``ValueError`` for an invalid position."""
    if isinstance(position, datetime):
        return f"timestamp:{timestamp_ms(position)}"
    if isinstance(position, int) and not isinstance(position, bool):
        return str(position)
    if position in ("earliest", "latest"):
        return str(position)
    raise ValueError(
        f"{position!r} is not a position; use an offset, 'earliest', 'latest', a datetime, or -100 for the "
        "last 100"
    )


def _is_skipping(undecodable: str) -> bool:
    if undecodable not in ("fail", "skip"):
        raise ValueError(f"undecodable is {undecodable!r}; choose 'fail' or 'skip'")
    return undecodable == "skip"


def _check_isolation(isolation: str) -> None:
    if isolation not in ("committed", "uncommitted"):
        raise ValueError(f"isolation is {isolation!r}; choose 'committed' or 'uncommitted'")


def _check_min_offset(min_offset: int | None) -> None:
    if min_offset is not None and (type(min_offset) is not int or min_offset < 0):
        raise ValueError(f"min_offset is {min_offset!r}; give an offset, such as receipt.offset + 1")


def _written(selection: TagSelection | None) -> str:
    """The query parameters of a tag selection, each preceded by ``&``."""
    if selection is None:
        return ""
    lists = zip(FIELDS, (selection.any, selection.all, selection.none), strict=True)
    return "".join(f"&{name}={quote(SEPARATOR.join(tags))}" for name, tags in lists if tags)
