"""Readers that use ``raftlog.client``; their chunks, tails and positions are compared with the committed
records (C4).
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import astuple

from chaos.history import Look
from raftlog import aio
from raftlog.client.messages import Chunk, Message
from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.records.tags import TagSelection, tag_fields
from verification.simulator.scenarios.http.side import HttpSide
from verification.simulator.scenarios.http.simulated_client import SimulatedClient
from verification.simulator.scenarios.http.wanted_tags import is_wanted

_ONCE: Final = "C4 a reader gets every record once"
_ENDS: Final = "C6 the offsets of a chunk are correct"
_SELECTIONS: Final = (
    TagSelection(any=("green", "red")),
    TagSelection(all=("blue", "red")),
    TagSelection(any=("blue", "green"), none=("red",)),
)


class ShippedReader(SimulatedClient):
    """Follows one partition, by one of several functions of the client."""

    def __init__(self, side: HttpSide, name: str, partition: int) -> None:
        super().__init__(side, name)
        self._partition = partition
        self._position = 0

    async def run(self) -> None:
        """Read until the run ends; then continue until all records are read, and stop during a wait."""
        client = self.client()
        await client.open()
        partition = client.partition(self.cluster.checked[0].topic, self._partition)
        manner = self.rng.choice((self._tail, self._chunks, self._reads))
        task = asyncio.get_running_loop().create_task(self._goes_on(manner, partition))
        while self.cluster.is_producing:
            await self._look(partition)
        await self.until_caught_up(self._partition, lambda: self._position)
        task.cancel()
        await asyncio.wait([task])
        await self._check_positions(partition)
        await self._check_gaps(partition)
        await self._check_tags(partition)
        await client.close()
        await self.check_nothing_is_left()

    async def _goes_on(self, manner: object, partition: aio.Partition) -> None:
        assert callable(manner)
        while True:
            try:
                await manner(partition)
            except OffsetOutOfRange as error:
                self._position = self.deleted(self._partition, self._position, error)
            except RaftlogError as error:
                if not error.retryable:
                    self.cluster.violated("I12 errors", f"{self.name}: {error!r}")
            await self.think()

    async def _tail(self, partition: aio.Partition) -> None:
        async for message in partition.tail(self._position, max_bytes=self._max_bytes()):
            self._got([message], message.offset + 1)

    async def _chunks(self, partition: aio.Partition) -> None:
        async for chunk in partition.chunks(self._position, max_bytes=self._max_bytes()):
            if not chunk.messages:
                self.cluster.violated(_ENDS, f"{self.name}: an empty chunk of a tail, {chunk}")
            self._check_chunk(chunk)
            self._got(chunk.messages, chunk.next_offset)

    async def _reads(self, partition: aio.Partition) -> None:
        wait = self.rng.choice(("0ms", "100ms", "400ms"))
        limit = self.rng.choice((None, 1, 3))
        chunk = await partition.read(self._position, limit=limit, max_bytes=self._max_bytes(), wait=wait)
        if limit is not None and len(chunk) > limit:
            self.cluster.violated(_ENDS, f"{self.name}: {len(chunk)} of {limit}")
        self._check_chunk(chunk)
        self._got(chunk.messages, chunk.next_offset)

    def _max_bytes(self) -> int:
        return self.rng.choice((1, 300, 1 << 20))

    def _got(self, messages: list[Message], following: int) -> None:
        """Check that messages are exactly the committed records from the reader's position to
        ``following``.
        """
        committed = self.committed(self._partition)
        if committed is not None and self._position >= committed.known_from:
            wanted = [
                (*row[:-1], "LogAppendTime" if row.is_append_time else "CreateTime")
                for row in committed.between(self._position, following)
            ]
            found = [astuple(message)[2:] for message in messages]
            if found != wanted:
                detail = f"{self.name} at {self._position}: {found}, committed up to {following} are {wanted}"
                self.cluster.violated(_ONCE, detail)
        if messages:
            values = [(message.offset, (message.value or b"").decode()) for message in messages]
            self.polled(self._partition, values)
        self._position = following

    def _check_chunk(self, chunk: Chunk) -> None:
        committed = self.committed(self._partition)
        end = 0 if committed is None else committed.end
        is_right = self._position <= chunk.next_offset <= max(chunk.high_watermark, self._position)
        is_right = is_right and chunk.high_watermark <= end
        stable = chunk.last_stable_offset  # below the end only where a busy broker has applied no more
        is_busy = bool(self.cluster.odds.turn_s)
        is_right = is_right and (
            stable == chunk.high_watermark or (is_busy and stable < chunk.high_watermark)
        )
        is_right = is_right and chunk.is_up_to_date is (chunk.next_offset >= stable)
        if not is_right or chunk.leader_epoch <= 0 or chunk.log_start_offset < 0:
            self.cluster.violated(_ENDS, f"{self.name} at {self._position}: {chunk}, committed is {end}")

    async def _look(self, partition: aio.Partition) -> None:
        invoked = self.cluster.loop.now
        await asyncio.sleep(0.1 + self.rng.random())
        invoked = self.cluster.loop.now
        try:
            end = await partition.offset_at("latest")
        except RaftlogError:
            return
        look = Look(
            partition=self._partition,
            invoked_s=invoked,
            completed_s=self.cluster.loop.now,
            high_watermark=end,
        )
        self.cluster.history.looks.append(look)

    async def _check_gaps(self, partition: aio.Partition) -> None:
        """Check that a read from a control record's offset begins with the next user record."""
        committed = self.committed(self._partition)
        if committed is None or not committed.rows:
            return
        first = max(committed.known_from, committed.rows[-1].offset - 200)
        gaps = [at for at in range(first, committed.rows[-1].offset) if committed.at(at) is None]
        for at in gaps[-2:]:
            try:
                chunk = await partition.read(at, max_bytes=1)
            except RaftlogError:
                continue  # it may be deleted
            wanted = committed.between(at, committed.end)[0].offset
            if not chunk.messages or chunk.messages[0].offset != wanted:
                self.cluster.violated(_ONCE, f"{self.name}: a read at {at} is {chunk}, {wanted} comes next")

    async def _check_tags(self, partition: aio.Partition) -> None:
        """Check that a read with tags returns exactly the messages with these tags, from all senders."""
        committed = self.committed(self._partition)
        if committed is None or not committed.rows:
            return
        first = max(committed.known_from, committed.rows[-1].offset - 200)
        wanted = self.rng.choice(_SELECTIONS)
        limit = self.rng.choice((None, 2))
        try:
            chunk = await partition.read(
                first, limit=limit, max_bytes=self._max_bytes(), **tag_fields(wanted)
            )
        except RaftlogError:
            return  # it may be deleted
        rows = committed.between(first, chunk.next_offset)
        offsets = [row.offset for row in rows if is_wanted(row.headers, wanted)]
        found = [message.offset for message in chunk]
        if found != offsets or chunk.next_offset < first:
            detail = f"{self.name}: {wanted} from {first} to {chunk.next_offset}: {found}, not {offsets}"
            self.cluster.violated(_ONCE, detail)

    async def _check_positions(self, partition: aio.Partition) -> None:
        """After healing, check a read of the last records, and a chunk from each kind of position."""
        count = self.rng.choice((1, 3))
        before = self.committed(self._partition)
        least = 0 if before is None else before.first_of_last(count, before.end)
        try:
            chunk = await partition.read(-count)
        except RaftlogError as error:
            self.cluster.violated("L8 healed clients work", f"{self.name}: {error!r}")
            return
        committed = self.committed(self._partition)
        if committed is None:
            return
        offsets = [message.offset for message in chunk]
        first = offsets[0] if offsets else chunk.next_offset
        wanted = [row.offset for row in committed.between(first, chunk.next_offset)]
        last = committed.between(chunk.log_start_offset, chunk.high_watermark)[-count:]
        missed = [row.offset for row in last if row.offset < first]
        is_right = first >= least and not missed
        if not is_right or (offsets != wanted and first >= committed.known_from):
            detail = f"{self.name}: the last {count} are {offsets} from {least}, not {wanted}, and {missed}"
            self.cluster.violated(_ENDS, detail)
