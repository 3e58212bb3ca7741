"""Any partition from any broker: the local replica when it leads, else one hop to the one that does.

Decides: which broker to ask, how long to look for a leader, which call may be repeated, and how many
produced bytes this broker holds at once. Leaves to others: serving (``replica``), what a call looks
like (``rpc``), which partitions exist (the metadata image).

A broker that is asked by another serves from its own replica or raises ``NotLeader``; it never asks
further. A call that may have been carried out is repeated only when that is harmless: reads always,
a produce only when every batch has a sequence, so that its repetition is recognised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.replica.bounded_reads import PROOF_S, AskReadIndex
from partitions.replica.replica import PartitionReplica
from partitions.replica.topic_rules import Body
from partitions.routing import rpc
from partitions.routing.closest import ClosestReplicas
from partitions.routing.rpc import Place
from partitions.values import (
    Acks,
    AcksKind,
    AppendReceipt,
    FetchRequest,
    FetchResult,
    PartitionStatus,
    Position,
    key_of,
)
from raftlog.errors import (
    CommitUnknown,
    NoLeader,
    NotLeader,
    Overloaded,
    RaftlogError,
    UnknownPartition,
    UnknownTopic,
)
from raftlog.node.leader_search import (
    PATIENCE_S,
    UNANSWERED,
    InDoubt,
    LeaderNotFound,
    LeaderSearch,
    Refused,
)
from raftlog.node.rpc import Calls, decode_body, encode_body
from raftlog.records.batch import Buffer, split_batches, unstamped
from raftlog.records.control import Archived, Marker
from raftlog.types import GroupId, Index, NodeId, Offset, Term, TopicPartition
from raftlog.units import counted

Answer = TypeVar("Answer")
Ask = Callable[[NodeId, Place], Awaitable[Answer]]

BYTES_IN_FLIGHT_MAX: Final = 64 << 20
GRACE_MS: Final = 500  # a leader's own "unknown" says more than a time-out here: let it come
PARK_MS: Final = 5_000  # a forwarded read parks for so long at a time: it cannot hear that its client left
RETRY_AFTER_MS: Final = 200
REASON_CHARS_MAX: Final = 500  # of why one replica takes no part
NO_BYTES: Final[tuple[Buffer, ...]] = ()


class Gateway:
    """All partitions, as one broker reaches them. It offers its own replicas to the other brokers."""

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        replicas: Mapping[tuple[str, int], PartitionReplica],
        calls: Calls,
        *,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
        why_offline: Callable[[TopicPartition], str] = lambda target: "it is not open",
        awaiting_archive: Callable[[GroupId], int] = lambda group_id: 0,
    ) -> None:
        """``why_offline`` says what a replica of this broker that takes no part waits for.

        ``awaiting_archive`` says how many bytes retention keeps here only until they are archived.
        """
        self._node_id = node_id
        self._image = image
        self._replicas = replicas
        self._calls = calls
        self._bytes_in_flight_max = bytes_in_flight_max
        self._why_offline = why_offline
        self._awaiting_archive = awaiting_archive
        self._leaders: dict[
            TopicPartition, NodeId
        ] = {}  # the broker that answered last, where no replica here knows
        self._closest = ClosestReplicas(node_id, image, lambda: asyncio.get_running_loop().time())
        self.bytes_in_flight = 0
        calls.serve(rpc.APPEND, self._serve_append)
        calls.serve(rpc.MARK, self._serve_mark)
        calls.serve(rpc.DELETE_BEFORE, self._serve_delete_before)
        calls.serve(rpc.SET_ARCHIVED, self._serve_set_archived)
        calls.serve(rpc.FETCH, self._serve_fetch)
        calls.serve(rpc.READ_INDEX, self._serve_read_index)
        calls.serve(rpc.OFFSET_AT, self._serve_offset_at)
        calls.serve(rpc.DESCRIBE, self._serve_describe)

    @property
    def replicas(self) -> Mapping[tuple[str, int], PartitionReplica]:
        """Those of this broker that take part, by topic and partition."""
        return self._replicas

    async def append(
        self,
        target: TopicPartition,
        batches: Body,
        *,
        acks: Acks,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> AppendReceipt:
        """Append a produced body at the leader, all of it or nothing; see ``PartitionReplica.append``.

        Buffers that can be written to are given away: the leader stamps them in place.
        Raises what the leader raises, ``NoLeader`` when none is found in time, ``Overloaded`` before
        anything is copied, and ``CommitUnknown`` when the answer was lost.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        buffers = (batches,) if isinstance(batches, bytes | bytearray | memoryview) else batches
        is_repeated = False

        async def ask(node: NodeId, place: Place) -> AppendReceipt:
            nonlocal buffers, is_repeated
            if is_repeated:  # the leader that was asked before may have stamped them, and may keep them
                buffers = [unstamped(buffer) for buffer in buffers]
            is_repeated = True
            left_ms = max(1, _ms_until(deadline))
            if node == self._node_id:
                return await self.here(place).append(
                    buffers, acks=acks, timeout_ms=left_ms, transactional_id=transactional_id
                )
            head = encode_body(rpc.Append(place, str(acks), left_ms, transactional_id))
            answer, _ = await self._calls.call(node, rpc.APPEND, head, buffers, timeout_ms=left_ms + GRACE_MS)
            return decode_body(answer, AppendReceipt)

        def ask_here(replica: PartitionReplica) -> Awaitable[AppendReceipt]:
            nonlocal is_repeated
            is_repeated = True
            return replica.append(
                buffers, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
            )

        def is_repeatable() -> bool:
            return acks.kind is not AcksKind.NONE and all(
                batch.header.is_sequenced for buffer in buffers for batch in split_batches(buffer)
            )

        size = self._take_room(buffers)
        try:
            return await self._at_leader(target, ask, deadline, is_repeatable, ask_here)
        finally:
            self.bytes_in_flight -= size

    async def mark(self, target: TopicPartition, marker: Marker, *, timeout_ms: int) -> None:
        """End a transaction in a partition; see ``PartitionReplica.mark``. It may be repeated."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000

        async def ask(node: NodeId, place: Place) -> None:
            left_ms = max(1, _ms_until(deadline))
            if node == self._node_id:
                await self.here(place).mark(marker, timeout_ms=left_ms)
                return
            head = encode_body(rpc.Mark(place, marker, left_ms))
            await self._calls.call(node, rpc.MARK, head, timeout_ms=left_ms + GRACE_MS)

        await self._at_leader(target, ask, deadline, lambda: True)

    async def delete_before(self, target: TopicPartition, offset: Offset, *, timeout_ms: int) -> Offset:
        """Delete records; the log start then. See ``PartitionReplica.delete_before``. It may be repeated."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000

        async def ask(node: NodeId, place: Place) -> Offset:
            left_ms = max(1, _ms_until(deadline))
            if node == self._node_id:
                return await self.here(place).delete_before(offset, timeout_ms=left_ms)
            head = encode_body(rpc.DeleteBefore(place, offset, left_ms))
            answer, _ = await self._calls.call(node, rpc.DELETE_BEFORE, head, timeout_ms=left_ms + GRACE_MS)
            return decode_body(answer, Offset)

        try:
            return await self._at_leader(target, ask, deadline, lambda: True)
        except CommitUnknown as unknown:
            raise CommitUnknown(
                f"whether the records of {target} below {offset} are deleted is not known; repeat: {unknown}"
            ) from unknown

    async def set_archived(self, target: TopicPartition, archived: Archived, *, timeout_ms: int) -> Offset:
        """Set up to which offset a partition is archived; the offset that counts then.

        See ``PartitionReplica.set_archived``. It may be repeated.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000

        async def ask(node: NodeId, place: Place) -> Offset:
            left_ms = max(1, _ms_until(deadline))
            if node == self._node_id:
                return await self.here(place).set_archived(archived, timeout_ms=left_ms)
            head = encode_body(rpc.SetArchived(place, archived, left_ms))
            answer, _ = await self._calls.call(node, rpc.SET_ARCHIVED, head, timeout_ms=left_ms + GRACE_MS)
            return decode_body(answer, Offset)

        try:
            return await self._at_leader(target, ask, deadline, lambda: True)
        except CommitUnknown as unknown:
            raise CommitUnknown(
                f"whether {target} is archived up to {archived.offset} is not known; repeat: {unknown}"
            ) from unknown

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """Read at the leader; see ``Reads.fetch``. A change of leader while waiting goes unnoticed.

        With ``max_staleness_ms`` it reads from the closest replica that can serve, and else from the leader;
        see ``ClosestReplicas.of`` and ``BoundedReads.fetch``; with ``is_local`` only from its own.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + max(request.wait_ms, 0) / 1000
        goal = min(request.bytes_min, request.bytes_max)
        if request.wait_ms > 0 and not isinstance(request.position, int):
            # Only an offset means the same at the next leader: find it before waiting.
            result = await self._fetch_once(target, request, loop.time())
            if len(result.data) >= goal:
                return result
            request = replace(request, position=result.offset)
        while True:
            began = loop.time()
            result = await self._fetch_once(target, request, end)
            now = loop.time()
            if len(result.data) >= goal or now >= end or now - began < PARK_MS / 1000:
                return result

    async def _fetch_once(self, target: TopicPartition, request: FetchRequest, end: float) -> FetchResult:
        """One answer; a forwarded read is answered after ``PARK_MS`` even when it asked to wait longer."""

        async def ask(node: NodeId, place: Place) -> FetchResult:
            left_ms = max(0, _ms_until(end))
            if node == self._node_id:
                local = replace(request, wait_ms=left_ms)
                return await self.here(place).fetch(local, self._read_index_of(place))
            wait_ms = min(left_ms, PARK_MS)
            answer, data = await self._calls.call(
                node,
                rpc.FETCH,
                encode_body(rpc.Fetch(place, replace(request, wait_ms=wait_ms))),
                timeout_ms=wait_ms + int(PATIENCE_S * 1000),
            )
            return decode_body(answer, rpc.Fetched).with_data(data)

        def ask_here(replica: PartitionReplica) -> Awaitable[FetchResult]:
            return replica.fetch(
                replace(request, wait_ms=max(0, _ms_until(end))) if request.wait_ms else request
            )

        if request.max_staleness_ms:
            info = self._partition(target)
            if request.is_local:
                return await ask(self._node_id, (target, info.group_id))
            for node in self._closest.of(target, info, request, self.leader_of(target)):
                try:
                    return await ask(node, (target, info.group_id))
                except (*UNANSWERED, Overloaded):
                    self._closest.refused(target, node)
            return await self._at_leader(target, ask, end + PATIENCE_S, None)
        return await self._at_leader(target, ask, end + PATIENCE_S, None, ask_here)

    def _read_index_of(self, place: Place) -> AskReadIndex:
        """Asks the leader of a partition up to where it is committed."""

        async def ask(leader: NodeId) -> Index:
            if leader == self._node_id:
                return await self.here(place).read_index()
            head = encode_body(rpc.ReadIndex(place))
            answer, _ = await self._calls.call(leader, rpc.READ_INDEX, head, timeout_ms=int(PROOF_S * 1000))
            return decode_body(answer, Index)

        return ask

    async def offset_at(
        self, target: TopicPartition, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """An offset and its record's timestamp, from the leader; see ``Reads.offset_at``."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S

        async def ask(node: NodeId, place: Place) -> tuple[Offset, int | None]:
            if node == self._node_id:
                return await self.here(place).offset_at(position, committed_only=committed_only)
            head = encode_body(rpc.OffsetAt(place, position, committed_only))
            timeout_ms = max(1, _ms_until(deadline)) + GRACE_MS
            answer, _ = await self._calls.call(node, rpc.OFFSET_AT, head, timeout_ms=timeout_ms)
            return decode_body(answer, tuple[Offset, int | None])

        return await self.read_at_leader(target, ask, deadline)

    async def describe(self, topic: str) -> list[PartitionStatus]:
        """Every partition of a topic: as its leader sees it, else as the newest term that answers.

        Without a leader it says which replicas rejoin, which take no part, and why.
        """
        info = self._topic(topic)
        best = {p.partition: _unknown_status(p.partition, p.replicas) for p in info.partitions}
        asked: set[tuple[int, NodeId]] = set()
        heard: dict[int, list[PartitionStatus]] = {number: [] for number in best}
        for _ in range(1 + max(len(partition.replicas) for partition in info.partitions)):
            wanted: dict[NodeId, list[PartitionInfo]] = {}
            for partition in info.partitions:
                status = best[partition.partition]
                if status.leader is not None and (partition.partition, status.leader) in asked:
                    continue
                known = status.leader or self.leader_of(TopicPartition(topic, partition.partition))
                for node in (known, *partition.replicas):
                    if node is not None and (partition.partition, node) not in asked:
                        wanted.setdefault(node, []).append(partition)
                        asked.add((partition.partition, node))
                        break
            if not wanted:
                break
            answers = await asyncio.gather(*(self._ask_status(node, topic, w) for node, w in wanted.items()))
            for status in (status for answer in answers for status in answer):
                best[status.partition] = max(best[status.partition], status, key=_authority)
                heard[status.partition].append(status)
        return [_why_unled(best[number], heard[number]) for number in best]

    def leader_of(self, target: TopicPartition) -> NodeId | None:
        """The leader as far as this broker knows."""
        replica = self._replicas.get((target.topic, target.partition))
        here = None if replica is None else replica.leader
        return here if here is not None else self._leaders.get(target)

    # Finding the leader.

    async def read_at_leader(self, target: TopicPartition, ask: Ask[Answer], deadline: float) -> Answer:
        """Ask until the leader answers. Reads may be asked again whatever became of them."""
        return await self._at_leader(target, ask, deadline, None)

    async def _at_leader(
        self,
        target: TopicPartition,
        ask: Ask[Answer],
        deadline: float,
        is_repeatable: Callable[[], bool] | None,
        ask_here: Callable[[PartitionReplica], Awaitable[Answer]] | None = None,
    ) -> Answer:
        """See ``LeaderSearch.ask``. Raises ``UnknownTopic`` and ``UnknownPartition``, also in the search.

        With ``ask_here`` a replica of this broker is asked first, without a search, if it leads.
        """
        info = self._partition(target)
        refused: Refused | None = None
        replica = self._replicas.get((target.topic, target.partition))
        if ask_here is not None and replica is not None and replica.leads(info.group_id):
            asked_at = asyncio.get_running_loop().time()
            try:
                return await ask_here(replica)
            except UNANSWERED as refusal:
                refused = Refused(self._node_id, asked_at, refusal)

        def candidates() -> tuple[NodeId | None, ...]:
            nonlocal info
            info = self._partition(target)
            return self.leader_of(target), *info.replicas

        async def ask_node(node: NodeId) -> Answer:
            try:
                answer = await ask(node, (target, info.group_id))
            except UNANSWERED:
                self._leaders.pop(target, None)
                raise
            if key_of(target) not in self._replicas:
                self._leaders[target] = node
            return answer

        try:
            return await LeaderSearch(deadline).ask(
                candidates, ask_node, is_repeatable=is_repeatable, refused=refused
            )
        except LeaderNotFound as failure:
            raise _no_leader(target, failure.last) from failure.last
        except InDoubt as failure:
            raise _unknown(target, failure.last) from failure.last

    def _partition(self, target: TopicPartition) -> PartitionInfo:
        info = self._topic(target.topic)
        partition = _partition(info, target.partition)
        if partition is None:
            raise UnknownPartition(
                f"topic {target.topic!r} has {counted(len(info.partitions), 'partition')}, "
                f"none is {target.partition}",
                topic=target.topic,
                partition=target.partition,
            )
        return partition

    def _topic(self, name: str) -> TopicInfo:
        info = self._image().topics.get(name)
        if info is None:
            raise UnknownTopic(f"there is no topic {name!r}", topic=name)
        return info

    def here(self, place: Place) -> PartitionReplica:
        """This broker's replica. Raises ``NotLeader`` when it has none of this very group."""
        target, group_id = place
        replica = self._replicas.get(key_of(target))
        if replica is None or replica.group.group_id != group_id:
            raise NotLeader(f"this broker holds no replica of {target}", leader=None)
        return replica

    def _take_room(self, buffers: Sequence[Buffer]) -> int:
        """Count the bytes of a body, which the caller takes off when it is no longer on its way."""
        size = sum(map(len, buffers))
        if self.bytes_in_flight and self.bytes_in_flight + size > self._bytes_in_flight_max:
            raise Overloaded(
                f"{self.bytes_in_flight} bytes are on their way through this broker; slow down and retry",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self.bytes_in_flight += size
        return size

    # Asking.

    async def _ask_status(
        self, node: NodeId, topic: str, partitions: Sequence[PartitionInfo]
    ) -> list[PartitionStatus]:
        places = tuple((TopicPartition(topic, info.partition), info.group_id) for info in partitions)
        if node == self._node_id:
            return self._statuses(places)
        try:
            answer, _ = await self._calls.call(
                node, rpc.DESCRIBE, encode_body(rpc.Describe(places)), timeout_ms=int(PATIENCE_S * 1000)
            )
        except RaftlogError:
            silent = [_unknown_status(partition.partition) for partition in partitions]
            return [replace(status, offline=((node, "its broker does not answer"),)) for status in silent]
        return decode_body(answer, list[PartitionStatus])

    def _statuses(self, places: Sequence[Place]) -> list[PartitionStatus]:
        return [self._status(place) for place in places]

    def _status(self, place: Place) -> PartitionStatus:
        """Of this broker's replica, which may take no part."""
        target = place[0]
        try:
            replica = self.here(place)
            status = replica.status()
            if replica.group.stopped is None:
                return replace(status, awaiting_archive_bytes=self._awaiting_archive(place[1]))
        except (NotLeader, NoLeader):
            status = _unknown_status(target.partition)
        return replace(status, offline=((self._node_id, self._why_offline(target)[:REASON_CHARS_MAX]),))

    # Answering other brokers.

    async def _serve_append(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.Append)
        acks = Acks.parse(ask.acks)
        size = self._take_room((payload,))
        try:
            receipt = await self.here(ask.place).append(
                payload, acks=acks, timeout_ms=ask.timeout_ms, transactional_id=ask.transactional_id
            )
        finally:
            self.bytes_in_flight -= size
        return encode_body(receipt), NO_BYTES

    async def _serve_mark(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.Mark)
        await self.here(ask.place).mark(ask.marker, timeout_ms=ask.timeout_ms)
        return b"", NO_BYTES

    async def _serve_delete_before(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.DeleteBefore)
        start = await self.here(ask.place).delete_before(ask.offset, timeout_ms=ask.timeout_ms)
        return encode_body(start), NO_BYTES

    async def _serve_set_archived(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.SetArchived)
        offset = await self.here(ask.place).set_archived(ask.archived, timeout_ms=ask.timeout_ms)
        return encode_body(offset), NO_BYTES

    async def _serve_fetch(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.Fetch)
        result = await self.here(ask.place).fetch(ask.request, self._read_index_of(ask.place))
        return encode_body(rpc.Fetched.of(result)), (result.data,)

    async def _serve_read_index(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.ReadIndex)
        return encode_body(await self.here(ask.place).read_index()), NO_BYTES

    async def _serve_offset_at(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.OffsetAt)
        replica = self.here(ask.place)
        found = await replica.offset_at(ask.position, committed_only=ask.committed_only)
        return encode_body(found), NO_BYTES

    async def _serve_describe(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        return encode_body(self._statuses(decode_body(head, rpc.Describe).places)), NO_BYTES


def _unknown(target: TopicPartition, error: RaftlogError | None) -> CommitUnknown:
    """Nobody knows, or will find out in time, what became of a produce."""
    if isinstance(error, CommitUnknown):
        return error
    return CommitUnknown(f"whether {target} took the records is not known: {error}", committed=None)


def _no_leader(target: TopicPartition, last: RaftlogError | None) -> RaftlogError:
    if isinstance(last, NoLeader):
        return last
    return NoLeader(
        f"{target} has no leader that can be reached; retry",
        retry_after_ms=RETRY_AFTER_MS,
        topic=target.topic,
        partition=target.partition,
    )


def _authority(status: PartitionStatus) -> tuple[int, bool, int]:
    """The newest term knows best, and within it the leader, which alone knows the replicas in sync."""
    return status.term, bool(status.in_sync), status.commit_index


def _why_unled(status: PartitionStatus, heard: Sequence[PartitionStatus]) -> PartitionStatus:
    """A leader knows the replicas that rejoin or are awaited; without one, each reports its own state."""
    if status.leader is not None:
        return replace(status, offline=())
    rejoining = {node for one in heard for node in one.rejoining}
    offline = dict(reason for one in heard for reason in one.offline)
    return replace(
        status,
        rejoining=tuple(sorted(rejoining)),
        awaited=tuple(sorted(offline)),
        offline=tuple(sorted(offline.items())),
    )


def _partition(info: TopicInfo, number: int) -> PartitionInfo | None:
    """Partitions mostly stand where their number says."""
    partitions = info.partitions
    if number < len(partitions) and partitions[number].partition == number:
        return partitions[number]
    return next((partition for partition in partitions if partition.partition == number), None)


def _unknown_status(partition: int, replicas: tuple[NodeId, ...] = ()) -> PartitionStatus:
    return PartitionStatus(
        partition=partition,
        leader=None,
        term=Term(-1),
        replicas=replicas,
        in_sync=(),
        commit_index=-1,
        log_start_offset=Offset(0),
        high_watermark=Offset(0),
        end_offset=Offset(0),
        size_bytes=0,
    )


def _ms_until(deadline: float) -> int:
    return round((deadline - asyncio.get_running_loop().time()) * 1000)
