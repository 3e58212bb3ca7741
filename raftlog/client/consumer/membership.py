"""Takes part in a group over HTTP: join, sync, heartbeat, commit, leave. Any broker answers.

Leaves to others: what happens to records when partitions are assigned or revoked (``core``).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from raftlog import tracing
from raftlog.assignors import Subscription
from raftlog.client.asking import Answer
from raftlog.client.consumer.options import ConsumerOptions
from raftlog.client.session import Session
from raftlog.client.user_code import called, shown
from raftlog.errors import GroupNotFound, MemberNotFound, RebalanceInProgress
from raftlog.records.tags import tag_fields
from raftlog.types import TopicPartition
from raftlog.wire import groups as wire
from raftlog.wire import members
from raftlog.wire.operation import Operation

COOPERATIVE = "cooperative-sticky"
PARK_S = 70.0  # longer than brokers let a request wait
HEARTBEATS_PER_SESSION = 3
LEAVE_S: Final = 5.0
LEAVE_AGAIN_S: Final = 0.2  # while a join is in progress


class Membership:
    """One member, which keeps its id in all generations. ``owned`` are its partitions in ``generation``."""

    def __init__(self, session: Session, options: ConsumerOptions) -> None:
        self._session = session
        self._options = options
        self.member_id = options.member_id or f"py-{uuid.uuid4().hex[:16]}"
        self.generation = -1
        self.strategy = ""
        self.owned: frozenset[TopicPartition] = frozenset()
        self._joining: asyncio.Task[wire.JoinedGroup] | None = None  # it outlives its caller

    async def join(self, topics: Sequence[str]) -> frozenset[TopicPartition]:
        """Join with these topics, or join again, and get this member's partitions.

        Raises ``MemberNotFound``, ``StaleGeneration`` or ``RebalanceInProgress`` if the group begins a newer
        generation during the call: join again.
        """
        self._joining = asyncio.create_task(self._join(topics, self._claims()))
        self._joining.add_done_callback(_seen)
        joined = await asyncio.shield(self._joining)
        self.generation, self.strategy, self.owned = joined.generation, joined.strategy, frozenset()
        plan = None if joined.role == "follower" else self._plan(joined)
        body = wire.SyncGroup(generation=joined.generation, assignments=plan)
        synced = await self._parked(members.SYNC, body)
        self.owned = _targets(synced.assignment)
        return self.owned

    async def heartbeat(self, wait_ms: int | None = None) -> bool:
        """Send a heartbeat; return whether the member must join again.

        The broker may delay its response, by default for a third of the session timeout.
        """
        if wait_ms is None:
            wait_ms = self._options.session_timeout_ms // HEARTBEATS_PER_SESSION
        body = wire.HeartbeatGroup(generation=self.generation)
        session, wait_s = self._session, wait_ms / 1000
        answer = await session.call(
            members.HEARTBEAT,
            body,
            query={"wait": f"{wait_ms}ms"},
            attempt_timeout_s=wait_s + session.request_timeout_s,
            retry_timeout_s=wait_s + session.retry_timeout_s,
            refusal_settles=True,
            group=self._options.group,
            member=self.member_id,
        )
        return answer.action == "rejoin"

    async def committed(self) -> dict[TopicPartition, int]:
        """The committed offsets of the group; empty if the group does not exist yet.

        Raises ``OffsetsPending`` while an open transaction may still commit an offset of this member's
        partitions: otherwise records that another member has processed could be processed twice. The call
        takes a third of the session timeout at most.
        """
        query = {"lag": "false", "stable": "true"}
        if not self._options.assigned:
            query["member_id"] = self.member_id
        try:
            limit_s = self._options.session_timeout_ms / 1_000 / HEARTBEATS_PER_SESSION
            found = await self._session.call(
                wire.OFFSETS, query=query, retry_timeout_s=limit_s, group=self._options.group
            )
        except GroupNotFound:
            if not self._options.assigned:
                raise  # this member's generation has ended
            return {}
        return {TopicPartition(item.topic, item.partition): item.committed_offset for item in found.items}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int,
        rewinds: bool,
        limit_s: float | None = None,
    ) -> None:
        """Commit the next offsets to read, as a member of ``generation``.

        Raises the error that fences this member. Temporary errors are retried for ``limit_s`` seconds, or if
        it is None for the retry timeout of the client.
        """
        body = wire.CommitOffsets(
            offsets=[
                wire.OffsetCommit(target.topic, target.partition, offset)
                for target, offset in offsets.items()
            ],
            member_id=None if self._options.assigned else self.member_id,
            generation=generation,
            allow_rewind=rewinds,
        )
        with tracing.committing(self._options.group):
            await self._session.call(wire.COMMIT, body, retry_timeout_s=limit_s, group=self._options.group)

    async def leave(self) -> None:
        """Leave the group, so that other members need not wait for the end of the session.

        A join in progress, on another connection, may reach the coordinator after the leave. So the member
        repeats the request to leave until the join has its answer.
        """
        joining, clock = self._joining, self._session.clock
        ends_s = clock.monotonic() + LEAVE_S
        try:
            while joining is not None and not joining.done() and clock.monotonic() < ends_s:
                with contextlib.suppress(GroupNotFound, MemberNotFound):
                    await self._leave()
                await asyncio.wait((joining,), timeout=LEAVE_AGAIN_S)
            await self._leave()
        finally:
            if joining is not None:
                joining.cancel()

    async def _leave(self) -> None:
        await self._session.call(
            members.LEAVE, retry_timeout_s=LEAVE_S, group=self._options.group, member=self.member_id
        )

    def _claims(self) -> list[wire.TopicPartitions] | None:
        """The partitions that the member owns, if it offers the cooperative strategy; otherwise None.

        Brokers know which partitions a member had, but not which of these it has lost. A cooperative
        assignment withholds partitions that another member still owns, so it needs the member's own list.
        Eager assignments withhold no partitions; for these the brokers' list is better, since fewer
        partitions move.
        """
        return _listed(self.owned) if COOPERATIVE in self._options.strategies else None

    async def _join(
        self, topics: Sequence[str], owned: list[wire.TopicPartitions] | None
    ) -> wire.JoinedGroup:
        options = self._options
        lists = tag_fields(options.selection)
        body = wire.JoinGroup(
            topics=[*topics],
            strategies=[*options.strategies],
            session_timeout=options.session_timeout_ms,
            rebalance_timeout=options.rebalance_timeout_ms,
            member_id=self.member_id,
            instance_id=options.instance_id,
            generation=self.generation,
            owned=owned,
            tags=[*lists.get("tags", ())],
            tags_all=[*lists.get("tags_all", ())],
            tags_none=[*lists.get("tags_none", ())],
        )
        while True:
            try:
                return await self._parked(members.JOIN, body)
            except RebalanceInProgress:
                continue  # the request waited as long as it may; the member still counts as joining

    async def _parked(self, operation: Operation[Answer], body: msgspec.Struct) -> Answer:
        """The answer to a request that waits for other members, perhaps longer than the retry timeout."""
        session = self._session
        return await session.call(
            operation,
            body,
            attempt_timeout_s=PARK_S,
            retry_timeout_s=PARK_S + session.retry_timeout_s,
            refusal_settles=True,
            group=self._options.group,
            member=self.member_id,
        )

    def _plan(self, joined: wire.JoinedGroup) -> dict[str, list[wire.TopicPartitions]] | Literal["auto"]:
        """The assignment, if the group uses a strategy of this client; otherwise ``auto`` for the broker."""
        own = self._options.assignors.get(joined.strategy)
        if own is None:
            return "auto"
        members = {
            info.member_id: Subscription(
                topics=frozenset(info.topics),
                owned=_targets(info.owned),
                owned_generation=info.owned_generation,
                instance_id=info.instance_id,
            )
            for info in joined.members
        }
        what = f"the assignor {joined.strategy!r}"
        plan = called(what, own.assign, members, joined.partition_counts)
        try:
            return called(what, _written, plan)
        except Exception as error:
            raise TypeError(
                f"{what} returned {shown(plan)[:200]}; give the partitions of each member, as in "
                "{'member': frozenset({TopicPartition('orders', 0)})}"
            ) from error


def _seen(joining: asyncio.Task[wire.JoinedGroup]) -> None:
    if not joining.cancelled():
        joining.exception()  # the caller has the error, unless the member leaves


def _targets(listed: list[wire.TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, number) for each in listed for number in each.partitions)


def _written(plan: Mapping[str, frozenset[TopicPartition]]) -> dict[str, list[wire.TopicPartitions]]:
    return {member: _listed(targets) for member, targets in plan.items()}


def _listed(targets: frozenset[TopicPartition]) -> list[wire.TopicPartitions]:
    numbers: dict[str, list[int]] = {}
    for target in sorted(targets):
        numbers.setdefault(target.topic, []).append(target.partition)
    return [wire.TopicPartitions(topic, some) for topic, some in numbers.items()]
