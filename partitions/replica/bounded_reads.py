"""Reads of a partition at any replica, with bounded staleness.

Decides: whether this replica is fresh enough to serve a read, and how it becomes fresh. Leaves to others:
reading (``reads``), and which replica is asked (``partitions.routing.closest``).

A replica asks the leader for a read index: the leader proves with a round of heartbeats that it leads, and
answers with its commit index. Once this replica has applied that index, it has all records committed at the
time of its question. The replica measures that time on its own monotonic clock, so no clocks are compared.
Delayed messages, paused processes, deposed leaders and quiescent groups make a proof older, never newer. One
proof serves all reads until it is too old for a read; while reads arrive, the next proof begins before that.

A follower shows only records up to the commit index that it knows. A follower never reports an offset as out
of range: only the leader can.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from partitions.replica.fetch_waiters import FetchWaiters
from partitions.replica.machine import PartitionMachine
from partitions.replica.reads import MIN_OFFSET_S, Reads
from partitions.replica.serving import Serving
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import (
    LogCorrupt,
    NoLeader,
    NotLeader,
    OffsetOutOfRange,
    RaftlogError,
    ReplicaNotInSync,
    TopicNotFound,
)
from raftlog.node.deadline import deadline_in
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import Index, NodeId, TopicPartition

PROOF_S: Final = 1.0  # time limit of a proof, including the time until this replica has applied the index
LOOK_S: Final = 0.001
PROOFS_MAX: Final = 2  # proofs that one read waits for: the first may have begun too early

AskReadIndex = Callable[[NodeId], Awaitable[Index]]
"""Function that asks the leader for the read index of the partition. Raises ``RaftlogError``."""


class Freshness:
    """The time at which this replica provably had all committed records, by its newest proof."""

    def __init__(self, serving: Serving, waiters: FetchWaiters) -> None:
        self._serving = serving
        self._waiters = waiters
        self._as_of_s = -math.inf  # by this process's monotonic clock
        self._proof: asyncio.Task[None] | None = None

    @property
    def age_s(self) -> float:
        """The age of the newest proof, in seconds."""
        return asyncio.get_running_loop().time() - self._as_of_s

    async def ensure(self, age_max_s: float, ask: AskReadIndex) -> None:
        """Return once the newest proof is younger than ``age_max_s``, if necessary after a new proof.

        Raises ``ReplicaNotInSync``, ``TopicNotFound``.
        """
        for _ in range(PROOFS_MAX):
            if self.age_s < age_max_s:
                break
            await asyncio.shield(self._prove(ask))
        if self.age_s >= age_max_s:
            raise self.not_in_sync(f"its newest proof is {self.age_s:.1f} s old")
        if self.age_s > age_max_s / 2:
            self._prove(ask)  # in the background

    def not_in_sync(self, why: str) -> ReplicaNotInSync:
        """The error that tells a reader to ask the leader instead."""
        serving = self._serving
        node = serving.group.node_id if serving.is_attached else None
        return ReplicaNotInSync(
            f"the replica of {serving.target} on broker {node} cannot serve this read: {why}; ask the leader",
            replica=node,
            leader=serving.leader,
        )

    def check_member(self) -> None:
        """Raise an error unless this replica runs and is a voter that counts in quorums."""
        self._serving.check_exists()
        group = self._serving.group
        if group.stopped is not None:
            raise self.not_in_sync("it has stopped")
        if group.is_rejoining or group.node_id not in group.membership.voters:
            raise self.not_in_sync("it is rejoining, or is not a voter")

    def _prove(self, ask: AskReadIndex) -> asyncio.Task[None]:
        proof = self._proof
        if proof is None:
            proof = self._proof = asyncio.get_running_loop().create_task(self._proved(ask))
            proof.add_done_callback(self._ended)
        return proof

    def _ended(self, proof: asyncio.Task[None]) -> None:
        self._proof = None
        if not proof.cancelled():
            proof.exception()  # waiting reads raise it

    async def _proved(self, ask: AskReadIndex) -> None:
        asked_s = asyncio.get_running_loop().time()
        self.check_member()
        leader = self._serving.leader
        if leader is None:
            raise self.not_in_sync("it knows no leader")
        try:
            async with asyncio.timeout(PROOF_S):
                index = await ask(leader)
                while self._serving.group.applied_index < index:
                    await self._waiters.wait(index)
                    self.check_member()
        except TimeoutError:
            raise self.not_in_sync(f"it lags behind broker {leader}, or cannot reach it") from None
        except (TopicNotFound, ReplicaNotInSync):
            raise
        except RaftlogError as error:
            raise self.not_in_sync(f"broker {leader} did not prove that it leads: {error}") from error
        self._as_of_s = max(self._as_of_s, asked_s)


class _Leader:
    """Permits reads on a leader with a recent proof of leadership."""

    def __init__(self, serving: Serving, freshness: Freshness, age_max_s: float) -> None:
        self._serving = serving
        self._freshness = freshness
        self._age_max_s = age_max_s

    @property
    def target(self) -> TopicPartition:
        return self._serving.target

    @property
    def group(self) -> RaftGroup[None]:
        return self._serving.group

    @property
    def is_ready(self) -> bool:
        return self._serving.is_ready

    @property
    def knows_start(self) -> bool:
        return self._serving.knows_start

    def check_serves(self) -> RaftGroup[None]:
        group = self._serving.check_leads()
        self._check_age()
        return group

    async def ready(self, deadline: float) -> None:
        await self._serving.ready(deadline)

    async def confirm(self) -> Index:
        return await self._serving.confirm()

    def damaged(self, error: LogCorrupt | OSError) -> NotLeader:
        return self._serving.damaged(error)

    def _check_age(self) -> None:
        if self._freshness.age_s > self._age_max_s:
            raise self._freshness.not_in_sync(f"its newest proof is {self._freshness.age_s:.1f} s old")


class _Follower(_Leader):
    """Permits reads on a follower with a recent proof. A follower never reports an offset as out of range."""

    @property
    def is_ready(self) -> bool:
        return False

    @property
    def knows_start(self) -> bool:
        return True  # the start is an entry of the log, and the proof covers it

    def check_serves(self) -> RaftGroup[None]:
        self._freshness.check_member()
        self._check_age()
        return self._serving.group

    async def ready(self, deadline: float) -> None:
        self.check_serves()


class BoundedReads:
    """Reads with bounded staleness at one replica, leader or follower."""

    def __init__(self, serving: Serving, machine: PartitionMachine, waiters: FetchWaiters) -> None:
        self.freshness = Freshness(serving, waiters)
        self._serving = serving
        self._machine = machine
        self._waiters = waiters

    async def fetch(self, request: FetchRequest, ask: AskReadIndex) -> FetchResult:
        """Read like ``Reads.fetch``, with all batches committed ``max_staleness_ms`` before the log is read.

        Raises ``ReplicaNotInSync`` if the reader must ask the leader, also for an offset above or below the
        records of this replica. On the leader the call raises the errors of ``Reads.fetch``.
        """
        loop = asyncio.get_running_loop()
        age_max_s = request.max_staleness_ms / 1000
        deadline = deadline_in(request.wait_ms)
        reached_by = max(deadline, loop.time() + MIN_OFFSET_S)
        goal = min(request.bytes_min, request.bytes_max)
        outdated = 0
        while True:
            await self.freshness.ensure(age_max_s, ask)
            fresh_until = loop.time() + age_max_s - self.freshness.age_s
            wait_ms = min(_ms_until(deadline), max(1, _ms_until(fresh_until)))
            try:
                result = await self._read(replace(request, wait_ms=wait_ms), age_max_s)
            except ReplicaNotInSync:
                outdated += loop.time() >= deadline
                if outdated > PROOFS_MAX or self.freshness.age_s <= age_max_s:
                    raise
                continue  # the proof became too old during the wait or the read
            if result is None or (result.end < request.min_offset and not self._is_leader):
                if loop.time() >= reached_by:
                    raise self.freshness.not_in_sync("it does not know that the offset is committed")
                await self._newer(min(reached_by, fresh_until))
                continue
            has_looked_enough = request.selection is not None and result.next_offset < result.end
            if result.size_bytes >= goal or loop.time() >= deadline or has_looked_enough:
                return result
            # Continue at a fixed offset, and behind records without a wanted tag.
            request = replace(request, position=result.offset if result.data else result.next_offset)

    @property
    def _is_leader(self) -> bool:
        return self._serving.group.is_leader

    async def _read(self, request: FetchRequest, age_max_s: float) -> FetchResult | None:
        """Read once; None if the offset, or ``min_offset``, is not known to be committed yet."""
        if self._is_leader:
            right = _Leader(self._serving, self.freshness, age_max_s)
            return await Reads(right, self._machine, self._waiters).fetch(request)
        reads = Reads(_Follower(self._serving, self.freshness, age_max_s), self._machine, self._waiters)
        if request.min_offset > reads.high_watermark:
            return None
        try:
            return await reads.fetch(request)
        except ReplicaNotInSync:
            raise
        except NoLeader:
            return None
        except (OffsetOutOfRange, NotLeader) as error:
            raise self.freshness.not_in_sync(str(error)) from error

    async def _newer(self, until: float) -> None:
        """Wait until another entry is committed here, at most until the loop's time ``until``.

        The wait may last ``LOOK_S`` in any case.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(max(until, asyncio.get_running_loop().time() + LOOK_S)):
                await self._waiters.wait(Index(self._serving.group.applied_index + 1))


def _ms_until(moment: float) -> int:
    return max(0, math.ceil((moment - asyncio.get_running_loop().time()) * 1000))
