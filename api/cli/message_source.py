"""Reads messages of several partitions as one stream.

Decides: the order of partitions and the end of reading. Existing messages are read one partition after the
other, so that equal logs give equal output. New messages are read from all partitions at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from raftlog.client.messages import Message
from raftlog.client.options import reader_preset
from raftlog.client.partition import AsyncPartition, Position, Undecodable
from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.records.tags import TagSelection, tag_fields
from raftlog.wire.bodies import SkippedRange


class Piece(NamedTuple):
    """Messages of one partition, and the skipped ranges of offsets between them."""

    partition: AsyncPartition
    messages: list[Message]
    skipped: list[SkippedRange]


async def present(
    partitions: Sequence[AsyncPartition],
    position: Position,
    to: Position | None,
    undecodable: Undecodable,
    selection: TagSelection | None = None,
    preset: str | None = None,
) -> AsyncGenerator[Piece, None]:
    """Yield all committed messages that exist now; if ``to`` is given, only the messages before this
    position.
    """
    bytes_max = reader_preset(preset).max_bytes
    ends = await asyncio.gather(*(partition.offset_at("latest") for partition in partitions))
    for partition, high_watermark in zip(partitions, ends, strict=True):
        at = await _offset(partition, position)
        end = high_watermark if to is None else min(high_watermark, await _offset(partition, to))
        if at > high_watermark:
            raise OffsetOutOfRange(
                f"{partition.topic}/{partition.number} ends at {high_watermark}, so offset {at} does not "
                f"exist yet; choose a lower offset, or wait for it with --follow",
                end=high_watermark,
            )
        while at < end:
            chunk = await partition.read(
                at, max_bytes=bytes_max, undecodable=undecodable, **tag_fields(selection)
            )
            messages = [message for message in chunk.messages if message.offset < end]
            yield Piece(partition, messages, [lost for lost in chunk.skipped if lost.offset < end])
            if chunk.next_offset == at:
                break  # the other records belong to open transactions
            at = chunk.next_offset


async def followed(
    partitions: Sequence[AsyncPartition],
    position: Position,
    undecodable: Undecodable,
    selection: TagSelection | None = None,
    preset: str | None = None,
) -> AsyncGenerator[Piece, None]:
    """Yield existing and new messages of all partitions, as they arrive, without end.

    If a partition begins at an offset that does not exist yet, messages below this offset are skipped.
    """
    queue: asyncio.Queue[Piece | RaftlogError] = asyncio.Queue(len(partitions))

    async def read(partition: AsyncPartition) -> None:
        try:
            first = await _offset(partition, position)
            at = min(first, await partition.offset_at("latest"))  # wait for an offset above the end
            chunks = partition.chunks(at, preset=preset, undecodable=undecodable, **tag_fields(selection))
            async for chunk in chunks:
                await queue.put(
                    Piece(
                        partition,
                        [message for message in chunk.messages if message.offset >= first],
                        [lost for lost in chunk.skipped if lost.offset >= first],
                    )
                )
        except RaftlogError as error:
            await queue.put(error)

    tasks = [asyncio.create_task(read(partition)) for partition in partitions]
    try:
        while True:
            item = await queue.get()
            if isinstance(item, RaftlogError):
                raise item
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _offset(partition: AsyncPartition, position: Position) -> int:
    if isinstance(position, int) and position >= 0:
        return position
    return await partition.offset_at(position)
