"""Members of a group that record what they see: the protocol over HTTP, the poll request, the Python client.

Decides: how a member reacts to each response. Leaves to others: how long a member runs (``__main__``). The
first two kinds share no code with ``raftlog.client``. A member processes a record by recording it, and
commits its offset afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from chaos.consumer_groups.history import Committed, Delivered, Owned, Recorder, Surprise
from chaos.http_client import Client
from raftlog.aio import Client as PythonClient
from raftlog.errors import MemberNotFound, NotSent, RaftlogError, RebalanceInProgress, StaleGeneration
from raftlog.wire import groups as wire
from raftlog.wire import media_types, members
from raftlog.wire.decoding import decoder_of
from raftlog.wire.operation import Operation

SESSION_MS: Final = 4_000
REBALANCE_MS: Final = 8_000
ANSWER_S: Final = 12.0  # longer than a rebalance
WORK_S_MAX: Final = (
    0.2  # time that a member works on the records of a poll, so that one poll gets several records
)
FENCED: Final = (MemberNotFound, StaleGeneration, RebalanceInProgress)

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Place:
    """The brokers, the group and the topic of the members of a crowd."""

    urls: tuple[str, ...]
    group: str
    topic: str


@dataclass(slots=True)
class _HttpMember:
    """The common part of both kinds of members that use plain HTTP."""

    place: Place
    name: str
    client: Client
    recorder: Recorder
    generation: int = -1
    assignment: tuple[int, ...] = ()
    invoked_s: float = field(default=0.0)

    async def ask(self, method: str, path: str, body: msgspec.Struct | None, kind: type[Body]) -> Body:
        """Send a request with a single attempt, and return the response. Raises ``RaftlogError``."""
        data = None if body is None else msgspec.json.encode(body)
        sent = {} if data is None else {"Content-Type": media_types.JSON}
        self.invoked_s = time.monotonic()
        _, found, _ = await self.client.call(method, path, data, sent, answer_s=ANSWER_S)
        return decoder_of(kind).decode(found or b"null")

    def path(self, operation: Operation[msgspec.Struct]) -> str:
        """Return the URL path of an operation on this member."""
        return operation.at(group=self.place.group, member=self.name)

    def owns(self, assigned: Iterable[wire.TopicPartitions]) -> None:
        """Record the partitions that the newest response assigns to this member."""
        self.assignment = tuple(number for each in assigned for number in each.partitions)
        self.recorder.add(
            Owned(
                member=self.name,
                generation=self.generation,
                partitions=self.assignment,
                invoked_s=self.invoked_s,
                completed_s=time.monotonic(),
            )
        )

    def has_committed(self, partition: int, offset: int, generation: int) -> None:
        """Record that the newest response acknowledged the commit of an offset."""
        self.recorder.add(
            Committed(
                member=self.name,
                generation=generation,
                partition=partition,
                offset=offset,
                invoked_s=self.invoked_s,
                completed_s=time.monotonic(),
            )
        )

    async def after(self, error: RaftlogError) -> None:
        """Handle an error: pause, and use another broker from now on. Records an error that no member should
        get.
        """
        if isinstance(error, MemberNotFound):
            self.generation = -1
        if not (error.retryable or isinstance(error, (*FENCED, NotSent))):
            self.recorder.add(Surprise(member=self.name, what=f"{type(error).__name__}: {error}"))
        self.client.rotate()
        await asyncio.sleep(self.client.rng.uniform(0.02, 0.2))

    async def work(self) -> None:
        """Wait for a random time, as a member does that processes a record."""
        await asyncio.sleep(self.client.rng.uniform(0, WORK_S_MAX))

    async def leave(self) -> None:
        """Leave the group. If the request fails, the member's session ends by itself."""
        await self.ask("DELETE", self.path(members.LEAVE), None, type(None))


class ProtocolMember(_HttpMember):
    """A member that joins, syncs, fetches, commits and heartbeats with separate requests."""

    async def run(self) -> None:
        """Act as a member until this task is cancelled."""
        while True:
            try:
                await self._join()
                await self._work()
            except RaftlogError as error:
                await self.after(error)

    async def _join(self) -> None:
        body = wire.JoinGroup(
            topics=[self.place.topic],
            session_timeout=SESSION_MS,
            rebalance_timeout=REBALANCE_MS,
            member_id=self.name,
            generation=self.generation,
        )
        path = members.JOIN.at(group=self.place.group)
        joined = await self.ask("POST", path, body, wire.JoinedGroup)
        self.generation = joined.generation
        plan: wire.SyncGroup = wire.SyncGroup(
            generation=joined.generation, assignments="auto" if joined.role == "leader" else None
        )
        synced = await self.ask("POST", self.path(members.SYNC), plan, wire.SyncedGroup)
        self.owns(synced.assignment)

    async def _work(self) -> None:
        """Read and commit until a rebalance begins. Raises ``RaftlogError``."""
        path = wire.OFFSETS.at(group=self.place.group)
        known = await self.ask("GET", f"{path}?lag=false", None, wire.GroupOffsetList)
        positions = {item.partition: item.committed_offset for item in known.items}
        while True:
            is_idle = True
            for partition in self.assignment:
                page = await self.client.fetch(
                    partition, positions.get(partition, 0), wait_ms=0, binary=False
                )
                if page.records:
                    is_idle = False
                    self.recorder.add(Delivered(member=self.name, partition=partition, records=page.records))
                    positions[partition] = page.next_offset
                    await self._commit(partition, page.next_offset)
            await self.work()
            wait = "?wait=500ms" if is_idle else ""
            body = wire.HeartbeatGroup(generation=self.generation)
            beat = await self.ask("POST", self.path(members.HEARTBEAT) + wait, body, wire.GroupHeartbeat)
            if beat.action == "rejoin":
                return

    async def _commit(self, partition: int, offset: int) -> None:
        body = wire.CommitOffsets(
            offsets=[wire.OffsetCommit(self.place.topic, partition, offset)],
            member_id=self.name,
            generation=self.generation,
        )
        await self.ask("PUT", wire.COMMIT.at(group=self.place.group), body, type(None))
        self.has_committed(partition, offset, self.generation)


class PollMember(_HttpMember):
    """A member that polls: a single request does everything. A poll without a response is repeated
    unchanged.
    """

    async def run(self) -> None:
        """Act as a member until this task is cancelled."""
        ack: list[wire.Place] = []
        while True:
            body = wire.PollGroup(
                topics=[self.place.topic],
                generation=self.generation,
                ack=ack,
                wait="1s",
                session_timeout=SESSION_MS,
            )
            try:
                polled = await self.ask("POST", self.path(members.POLL), body, wire.PolledGroup)
            except RaftlogError as error:
                await self.after(error)
                continue
            if not polled.ack_error:
                for place in ack:
                    self.has_committed(place.partition, place.offset, body.generation)
            self.generation = polled.generation
            ack = polled.positions if polled.action == "continue" else []
            if polled.action == "continue":
                self.owns(polled.assignment)
            for partition in {record.partition for record in polled.records}:
                records = tuple(
                    (record.offset, msgspec.json.decode(record.value, type=str))
                    for record in polled.records
                    if record.partition == partition
                )
                self.recorder.add(Delivered(member=self.name, partition=partition, records=records))
            await self.work()


@dataclass(slots=True)
class ClientMember:
    """A consumer of the Python client. Observers record its partitions and its commits."""

    place: Place
    name: str
    recorder: Recorder

    async def run(self) -> None:
        """Act as a member until this task is cancelled; then leave the group."""
        async with (
            PythonClient(list(self.place.urls)) as client,
            client.consumer(
                self.place.group,
                self.place.topic,
                member_id=self.name,
                session_timeout=f"{SESSION_MS}ms",
                rebalance_timeout=f"{REBALANCE_MS}ms",
                commit_interval="500ms",
            ) as consumer,
        ):
            async for batch in consumer.batches(limit=100):
                records = tuple((message.offset, (message.value or b"").decode()) for message in batch)
                self.recorder.add(Delivered(member=self.name, partition=batch[0].partition, records=records))

    async def leave(self) -> None:
        """Return at once, because ``run`` has left the group."""


Member = ProtocolMember | PollMember | ClientMember
