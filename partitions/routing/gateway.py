"""Access to any partition from any broker: calls the local replica if it leads, else the leader's broker.

Decides: which broker to ask, how long to search for a leader, and which call may be repeated. Leaves to
others: serving (``local``), the bodies of calls (``rpc``), which partitions exist (``confirmed_topics``).

A call that may have been carried out is repeated only if a second execution is harmless. A read always is; a
produce request only if every batch has a sequence, by which the leader recognises its repetition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from partitions.metadata.image import PartitionInfo
from partitions.metadata.source import CurrentMetadata
from partitions.replica.replica import PartitionReplica
from partitions.replica.topic_rules import Body
from partitions.routing import rpc
from partitions.routing.closest import ClosestReplicas
from partitions.routing.confirmed_topics import MISSING, ConfirmedTopics
from partitions.routing.local import RETRY_AFTER_MS, LocalReplicas
from partitions.routing.partition_calls import (
    DELETE_BEFORE,
    MARK,
    OFFSET_AT,
    SET_ARCHIVED,
    Answer,
    PartitionCall,
    Request,
)
from partitions.routing.relay import Relay
from partitions.routing.rpc import Place
from partitions.routing.statuses import Statuses
from partitions.routing.traffic import Traffic
from partitions.values import (
    NOTHING_CONSUMED,
    Acks,
    AcksKind,
    AppendReceipt,
    Consumed,
    FetchRequest,
    FetchResult,
    PartitionStatus,
    Position,
)
from raftlog.errors import (
    CommitUnknown,
    NoLeader,
    Overloaded,
    RaftlogError,
    TopicNotFound,
)
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.leader_search import (
    PATIENCE_S,
    UNANSWERED,
    InDoubt,
    LeaderNotFound,
    LeaderSearch,
    Refused,
)
from raftlog.node.rpc import Calls, decode_body, encode_body
from raftlog.records.batch import split_batches, unstamped
from raftlog.records.control import Archived, Marker
from raftlog.types import GroupId, NodeId, Offset, TopicPartition

Ask = Callable[[NodeId, Place], Awaitable[Answer]]

BYTES_IN_FLIGHT_MAX: Final = 64 << 20
GRACE_MS: Final = 500  # extra time for the leader's own "unknown", which says more than a time-out here
PARK_MS: Final = 5_000  # maximum wait of a forwarded read, which does not notice that its client left


class Gateway:
    """One broker's access to all partitions; also offers the broker's own replicas to other brokers."""

    def __init__(
        self,
        node_id: NodeId,
        metadata: CurrentMetadata,
        replicas: Mapping[tuple[str, int], PartitionReplica],
        calls: Calls,
        *,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
        why_offline: Callable[[TopicPartition], str] = lambda target: "it is not open",
        awaiting_archive: Callable[[GroupId], int] = lambda group_id: 0,
        consumed: Mapping[GroupId, Consumed] = NOTHING_CONSUMED,
    ) -> None:
        """``why_offline`` gives the reason why a replica of this broker does not run.

        ``awaiting_archive`` gives the bytes that retention keeps only until they are archived. ``consumed``
        has the committed offsets of the groups in ``retention.consumed.by`` of a topic.
        """
        self._node_id = node_id
        self.topics = ConfirmedTopics(metadata)
        self.traffic = Traffic(lambda: metadata.image.topics)
        self.relay = Relay(node_id, lambda: metadata.image, calls)
        self.local = LocalReplicas(
            node_id,
            replicas,
            calls,
            self.relay,
            bytes_in_flight_max=bytes_in_flight_max,
            why_offline=why_offline,
            awaiting_archive=awaiting_archive,
            consumed=consumed,
        )
        self._leaders: dict[Hashable, NodeId] = {}  # the broker that answered last, by partition
        self._closest = ClosestReplicas(
            node_id, lambda: metadata.image, lambda: asyncio.get_running_loop().time()
        )
        self._statuses = Statuses(node_id, self.local, self.relay, self.leader_of)

    @property
    def replicas(self) -> Mapping[tuple[str, int], PartitionReplica]:
        """The open replicas of this broker, by topic and partition."""
        return self.local.replicas

    async def append(
        self,
        target: TopicPartition,
        batches: Body,
        *,
        acks: Acks,
        timeout_ms: int,
        transactional_id: str | None = None,
        client: str = "",
    ) -> AppendReceipt:
        """Append a produced body at the leader, completely or not at all, as in ``PartitionReplica.append``.

        ``client`` is the client's address; the limit of new producers counts by address. The call may change
        writable buffers: a leader stamps them in place. Raises the errors of the leader, ``NoLeader`` if no
        leader is found in time, ``Overloaded`` before any byte is copied, and ``CommitUnknown`` if the answer
        was lost.
        """
        deadline = deadline_in(timeout_ms)
        buffers = (batches,) if isinstance(batches, bytes | bytearray | memoryview) else batches
        is_repeated = False

        async def ask(node: NodeId, place: Place) -> AppendReceipt:
            nonlocal buffers, is_repeated
            if is_repeated:  # the leader asked before may have stamped the buffers, and may still use them
                buffers = [unstamped(buffer) for buffer in buffers]
            is_repeated = True
            left_ms = ms_until(deadline)
            if node == self._node_id:
                return await self.local.here(place).append(
                    buffers, acks=acks, timeout_ms=left_ms, transactional_id=transactional_id, client=client
                )
            head = encode_body(rpc.Append(place, str(acks), left_ms, transactional_id, client))
            answer, _ = await self.relay.call(node, rpc.APPEND, head, buffers, timeout_ms=left_ms + GRACE_MS)
            return decode_body(answer, AppendReceipt)

        def ask_here(replica: PartitionReplica, led: RaftGroup[None]) -> Awaitable[AppendReceipt]:
            nonlocal is_repeated
            is_repeated = True
            return replica.append(
                buffers,
                acks=acks,
                timeout_ms=timeout_ms,
                transactional_id=transactional_id,
                client=client,
                led=led,
            )

        def is_repeatable() -> bool:
            return acks.kind is not AcksKind.NONE and all(
                batch.header.is_sequenced for buffer in buffers for batch in split_batches(buffer)
            )

        size = self.local.take_room(buffers)
        try:
            receipt = await self._at_leader(target, ask, deadline, is_repeatable, ask_here)
        finally:
            self.local.bytes_in_flight -= size
        self.traffic.appended(target.topic, size, receipt.record_count)
        return receipt

    async def mark(self, target: TopicPartition, marker: Marker, *, timeout_ms: int) -> None:
        """End a transaction in a partition, as ``PartitionReplica.mark`` describes.

        A call may be repeated.
        """
        await self.call(target, MARK, lambda place, ms: rpc.Mark(place, marker, ms), timeout_ms)

    async def delete_before(self, target: TopicPartition, offset: Offset, *, timeout_ms: int) -> Offset:
        """Delete records below an offset; return the new log start offset. A call may be repeated.

        Raises as ``Deletion.delete_before``, and ``call``.
        """
        return await self.call(
            target, DELETE_BEFORE, lambda place, ms: rpc.DeleteBefore(place, offset, ms), timeout_ms
        )

    async def set_archived(self, target: TopicPartition, archived: Archived, *, timeout_ms: int) -> Offset:
        """Set the archived offset of a partition; return the offset in force afterwards. A call may be
        repeated.

        Raises as ``Archiving.set_archived``, and ``call``.
        """
        return await self.call(
            target, SET_ARCHIVED, lambda place, ms: rpc.SetArchived(place, archived, ms), timeout_ms
        )

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """Read at the leader, as ``Reads.fetch`` describes. A waiting read continues at a new leader.

        With ``max_staleness_ms`` the read goes to the closest replica that can serve (``ClosestReplicas.of``,
        ``BoundedReads.fetch``), else to the leader. With ``is_local`` only this broker's replica is read.
        """
        loop = asyncio.get_running_loop()
        end = deadline_in(request.wait_ms)
        goal = min(request.bytes_min, request.bytes_max)
        # Another kind of position may change with the leader, so its offset is found before the read waits.
        finds_offset = request.wait_ms > 0 and not isinstance(request.position, int)
        while True:
            began = loop.time()
            result = await self._fetch_once(target, request, began if finds_offset else end)
            now, size_bytes = loop.time(), result.size_bytes
            if size_bytes >= goal or (not finds_offset and (now >= end or now - began < PARK_MS / 1000)):
                break
            if finds_offset:
                request, finds_offset = replace(request, position=result.offset), False
        self.traffic.read(target.topic, size_bytes)
        return result

    async def _fetch_once(self, target: TopicPartition, request: FetchRequest, end: float) -> FetchResult:
        """Read once; a read at another broker waits at most ``PARK_MS`` for records."""

        async def ask(node: NodeId, place: Place) -> FetchResult:
            left_ms = ms_until(end, at_least=0)
            if node == self._node_id:
                local = replace(request, wait_ms=left_ms)
                return await self.local.here(place).fetch(local, self.local.read_index_of(place))
            wait_ms = min(left_ms, PARK_MS)
            answer, data = await self.relay.call(
                node,
                rpc.FETCH,
                encode_body(rpc.Fetch(place, replace(request, wait_ms=wait_ms))),
                timeout_ms=wait_ms + int(PATIENCE_S * 1000),
            )
            return decode_body(answer, rpc.Fetched).with_data(data)

        def ask_here(replica: PartitionReplica, _: RaftGroup[None]) -> Awaitable[FetchResult]:
            return replica.fetch(
                replace(request, wait_ms=ms_until(end, at_least=0)) if request.wait_ms else request
            )

        if request.max_staleness_ms:
            info = await self.topics.partition(target)
            if request.is_local:
                return await ask(self._node_id, (target, info.group_id))
            for node in self._closest.of(target, info, request, self.leader_of(target)):
                try:
                    return await ask(node, (target, info.group_id))
                except (*UNANSWERED, *MISSING, Overloaded):  # the leader's search confirms what is missing
                    self._closest.refused(target, node)
            return await self._at_leader(target, ask, end + PATIENCE_S, None)
        return await self._at_leader(target, ask, end + PATIENCE_S, None, ask_here)

    async def offset_at(
        self, target: TopicPartition, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """Ask the leader for a position's offset and its record's timestamp, as in ``Reads.offset_at``."""
        patience_ms = int(PATIENCE_S * 1000)
        return await self.call(
            target, OFFSET_AT, lambda place, _: rpc.OffsetAt(place, position, committed_only), patience_ms
        )

    async def call(
        self,
        target: TopicPartition,
        call: PartitionCall[Request, Answer],
        request: Callable[[Place, int], Request],
        timeout_ms: int,
    ) -> Answer:
        """Call the leader. ``request`` makes the request of each attempt, from the remaining milliseconds.

        Raises the errors of the leader, ``NoLeader`` if no leader is found in time, and ``CommitUnknown`` if
        the answer to a call that changes data was lost.
        """
        deadline = deadline_in(timeout_ms)
        first = request((target, (await self.topics.partition(target)).group_id), timeout_ms)
        is_repeatable = call.is_repeatable and partial(call.is_repeatable, first)

        async def ask(node: NodeId, place: Place) -> Answer:
            left_ms = ms_until(deadline)
            return await self.ask(node, call, request(place, left_ms), left_ms + GRACE_MS)

        try:
            return await self._at_leader(target, ask, deadline, is_repeatable)
        except CommitUnknown as unknown:
            if call.effect is None:
                raise
            advice = "retry" if is_repeatable and is_repeatable() else "check before you retry"
            raise CommitUnknown(
                f"it is unknown whether {call.effect(first)}; {advice}: {unknown}"
            ) from unknown

    async def ask(
        self, node: NodeId, call: PartitionCall[Request, Answer], request: Request, timeout_ms: int
    ) -> Answer:
        """Call the replica on broker ``node``. Raises the errors of the replica, and of ``Relay.call``."""
        if node == self._node_id:
            return await self.local.carry_out(call, request)
        return await call.ask(self.relay, node, request, timeout_ms)

    async def describe(self, topic: str, partitions: Collection[int] | None = None) -> list[PartitionStatus]:
        """Describe partitions of a topic, by default all, as in ``Statuses.of``. Raises ``TopicNotFound``."""
        found = await self.topics.topic(topic)
        if found is None:
            raise TopicNotFound(f"there is no topic {topic!r}", topic=topic)
        return await self._statuses.of(found, partitions)

    def leader_of(self, target: TopicPartition) -> NodeId | None:
        """The leader, as far as this broker knows: according to its replica, or without a replica to its last
        request.
        """
        replica = self.local.replicas.get((target.topic, target.partition))
        return self._leaders.get(target) if replica is None else replica.leader

    # Finding the leader.

    async def _at_leader(
        self,
        target: TopicPartition,
        ask: Ask[Answer],
        deadline: float,
        is_repeatable: Callable[[], bool] | None,
        ask_here: Callable[[PartitionReplica, RaftGroup[None]], Awaitable[Answer]] | None = None,
    ) -> Answer:
        """Ask the leader of a partition, as ``LeaderSearch.ask`` describes.

        With ``ask_here`` a leading replica of this broker is asked first, without a search. Raises
        ``TopicNotFound`` and ``PartitionNotFound`` if confirmed metadata has no such partition, also during
        the search.
        """
        topics = self.topics
        info = topics.partition_here(target) or await topics.partition(target)
        refused: Refused | None = None
        replica = self.local.replicas.get((target.topic, target.partition))
        led = None if ask_here is None or replica is None else replica.led(info.group_id)
        if ask_here is not None and replica is not None and led is not None:
            asked_at = asyncio.get_running_loop().time()
            try:
                return await ask_here(replica, led)
            except UNANSWERED as refusal:
                refused = Refused(self._node_id, asked_at, refusal)
            except MISSING:
                await self._check_missing(target, info)
                raise

        def candidates() -> tuple[NodeId | None, ...]:
            nonlocal info
            found = topics.partition_here(target)
            if found is None:
                raise topics.missing(target)
            info = found
            return self.leader_of(target), *info.replicas

        search = LeaderSearch(deadline, leaders=self._leaders, group=target)
        try:
            return await search.ask(
                candidates,
                lambda node: ask(node, (target, info.group_id)),
                is_repeatable=is_repeatable,
                refused=refused,
            )
        except LeaderNotFound as failure:
            raise _no_leader(target, failure.last) from failure.last
        except InDoubt as failure:
            raise _unknown(target, failure.last) from failure.last
        except MISSING:
            await self._check_missing(target, info)
            raise

    async def _check_missing(self, target: TopicPartition, asked: PartitionInfo) -> None:
        """Return if the metadata has no such partition, as a replica has said; else raise ``NoLeader``.

        A replica that knows more than the metadata here is of a topic that was deleted, and another topic of
        that name may have been created since.
        """
        found = self.topics.partition_here(target)
        if found is not None and found.group_id == asked.group_id:
            await self.topics.confirm()
            found = self.topics.partition_here(target)
        if found is not None:
            raise NoLeader(
                f"{target} is being created or deleted; retry",
                retry_after_ms=RETRY_AFTER_MS,
                topic=target.topic,
                partition=target.partition,
            )


def _unknown(target: TopicPartition, error: RaftlogError | None) -> CommitUnknown:
    """The error for a produce request whose outcome is unknown when its time limit is reached."""
    if isinstance(error, CommitUnknown):
        return error
    return CommitUnknown(f"it is unknown whether {target} stored the records: {error}", committed=None)


def _no_leader(target: TopicPartition, last: RaftlogError | None) -> RaftlogError:
    if isinstance(last, NoLeader):
        return last
    return NoLeader(
        f"{target} has no reachable leader; retry",
        retry_after_ms=RETRY_AFTER_MS,
        topic=target.topic,
        partition=target.partition,
    )
