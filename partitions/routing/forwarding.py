"""What stands in the calls by which one broker asks another that leads a partition.

A head is a msgpack list, batches are the raw payload behind it. Every head begins with topic,
partition and group id: the group id tells a topic from an older one of the same name. Nothing is
decided here. Brokers are authenticated, but may run another version: what does not fit raises
``InvalidRequest``.
"""

from __future__ import annotations

from typing import Final

import msgpack

from partitions.values import (
    Acks,
    AppendReceipt,
    AtTime,
    Durability,
    FetchRequest,
    FetchResult,
    LastRecords,
    PartitionStatus,
    Position,
    Start,
)
from raftlog.errors import InvalidRequest
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.types import GroupId, Offset, Term, TopicPartition

APPEND: Final = Service("partition.append", CallClass.PRODUCE)
FETCH: Final = Service("partition.fetch", CallClass.FETCH)
DESCRIBE: Final = Service("partition.describe", CallClass.READ)
OFFSET_AT: Final = Service("partition.offset_at", CallClass.READ)

Place = tuple[TopicPartition, GroupId]


def pack_append(place: Place, acks: Acks, timeout_ms: int) -> bytes:
    """Head of an ``APPEND``; its payload is the produced body."""
    return _pack([*_place(place), str(acks), timeout_ms])


def unpack_append(head: bytes) -> tuple[Place, Acks, int]:
    """Place, acks and timeout_ms of an ``APPEND``."""
    match _unpack(head):
        case [str(topic), int(partition), int(group), str(acks), int(timeout_ms)]:
            return _placed(topic, partition, group), Acks.parse(acks), timeout_ms
    raise _malformed(APPEND.name)


def pack_receipt(receipt: AppendReceipt) -> bytes:
    """The answer to an ``APPEND``."""
    durability = receipt.durability
    return _pack(
        [
            receipt.base_offset,
            receipt.record_count,
            receipt.leader_epoch,
            receipt.timestamp_ms,
            receipt.was_duplicate,
            durability.acks,
            durability.committed,
            durability.fsynced,
            durability.replicas,
        ]
    )


def unpack_receipt(answer: bytes) -> AppendReceipt:
    """The receipt in the answer to an ``APPEND``."""
    match _unpack(answer):
        case [
            int(base),
            int(count),
            int(epoch),
            int() | None as timestamp_ms,
            bool(was_duplicate),
            str(acks),
            bool(committed),
            bool(fsynced),
            int(replicas),
        ]:
            return AppendReceipt(
                base_offset=Offset(base),
                record_count=count,
                leader_epoch=Term(epoch),
                timestamp_ms=timestamp_ms,
                was_duplicate=was_duplicate,
                durability=Durability(acks=acks, committed=committed, fsynced=fsynced, replicas=replicas),
            )
    raise _malformed(APPEND.name)


def pack_fetch(place: Place, request: FetchRequest) -> bytes:
    """Head of a ``FETCH``."""
    position = _packed_position(request.position)
    return _pack([*_place(place), position, request.bytes_max, request.bytes_min, request.wait_ms])


def unpack_fetch(head: bytes) -> tuple[Place, FetchRequest]:
    """Place and request of a ``FETCH``."""
    match _unpack(head):
        case [
            str(topic),
            int(partition),
            int(group),
            position,
            int(bytes_max),
            int(bytes_min),
            int(wait_ms),
        ]:
            request = FetchRequest(
                position=_position(position), bytes_max=bytes_max, bytes_min=bytes_min, wait_ms=wait_ms
            )
            return _placed(topic, partition, group), request
    raise _malformed(FETCH.name)


def pack_result(result: FetchResult) -> bytes:
    """The head of the answer to a ``FETCH``; its payload is the data."""
    return _pack(
        [
            result.offset,
            result.next_offset,
            result.log_start_offset,
            result.high_watermark,
            result.leader_epoch,
        ]
    )


def unpack_result(answer: bytes, data: memoryview) -> FetchResult:
    """The result in the answer to a ``FETCH``."""
    match _unpack(answer):
        case [int(offset), int(following), int(start), int(high_watermark), int(epoch)]:
            return FetchResult(
                offset=Offset(offset),
                data=data,
                next_offset=Offset(following),
                log_start_offset=Offset(start),
                high_watermark=Offset(high_watermark),
                leader_epoch=Term(epoch),
            )
    raise _malformed(FETCH.name)


def pack_offset_at(place: Place, position: Position) -> bytes:
    """Head of an ``OFFSET_AT``."""
    return _pack([*_place(place), _packed_position(position)])


def unpack_offset_at(head: bytes) -> tuple[Place, Position]:
    """Place and position of an ``OFFSET_AT``."""
    match _unpack(head):
        case [str(topic), int(partition), int(group), position]:
            return _placed(topic, partition, group), _position(position)
    raise _malformed(OFFSET_AT.name)


def pack_offset(found: tuple[Offset, int | None]) -> bytes:
    """The answer to an ``OFFSET_AT``."""
    return _pack(list(found))


def unpack_offset(answer: bytes) -> tuple[Offset, int | None]:
    """Offset and timestamp in the answer to an ``OFFSET_AT``."""
    match _unpack(answer):
        case [int(offset), int() | None as timestamp_ms]:
            return Offset(offset), timestamp_ms
    raise _malformed(OFFSET_AT.name)


def pack_describe(topic: str, groups: list[tuple[int, GroupId]]) -> bytes:
    """Head of a ``DESCRIBE``: the partitions of a topic that are asked for, each with its group."""
    return _pack([topic, groups])


def unpack_describe(head: bytes) -> list[Place]:
    """The partitions that a ``DESCRIBE`` asks for."""
    match _unpack(head):
        case [str(topic), list(groups)]:
            return [_placed(topic, partition, group) for partition, group in groups]
    raise _malformed(DESCRIBE.name)


def pack_statuses(statuses: list[PartitionStatus]) -> bytes:
    """The answer to a ``DESCRIBE``."""
    return _pack(
        [
            [
                status.partition,
                status.leader,
                status.term,
                status.replicas,
                status.in_sync,
                status.commit_index,
                status.log_start_offset,
                status.high_watermark,
                status.end_offset,
                status.size_bytes,
                status.learners,
                status.caught_up_percent,
                status.rejoining,
                status.awaited,
                status.offline,
            ]
            for status in statuses
        ]
    )


def unpack_statuses(answer: bytes) -> list[PartitionStatus]:
    """The statuses in the answer to a ``DESCRIBE``."""
    try:
        return [
            PartitionStatus(
                partition=partition,
                leader=leader,
                term=term,
                replicas=tuple(replicas),
                in_sync=tuple(in_sync),
                commit_index=commit_index,
                log_start_offset=start,
                high_watermark=high_watermark,
                end_offset=end,
                size_bytes=size,
                learners=tuple(learners),
                caught_up_percent=percent,
                rejoining=tuple(rejoining),
                awaited=tuple(awaited),
                offline=tuple((node, reason) for node, reason in offline),
            )
            for (
                partition,
                leader,
                term,
                replicas,
                in_sync,
                commit_index,
                start,
                high_watermark,
                end,
                size,
                learners,
                percent,
                rejoining,
                awaited,
                offline,
            ) in msgpack.unpackb(answer)
        ]
    except (TypeError, ValueError):
        raise _malformed(DESCRIBE.name) from None


def _packed_position(position: Position) -> list[str | int]:
    match position:
        case int():
            return ["offset", position]
        case Start():
            return [position.value]
        case AtTime(timestamp_ms):
            return ["time", timestamp_ms]
        case LastRecords(count):
            return ["last", count]


def _position(packed: object) -> Position:
    match packed:
        case ["offset", int(offset)]:
            return Offset(offset)
        case ["earliest"]:
            return Start.EARLIEST
        case ["latest"]:
            return Start.LATEST
        case ["time", int(timestamp_ms)]:
            return AtTime(timestamp_ms)
        case ["last", int(count)]:
            return LastRecords(count)
    raise _malformed("position")


def _place(place: Place) -> tuple[str, int, GroupId]:
    target, group_id = place
    return target.topic, target.partition, group_id


def _placed(topic: str, partition: int, group: int) -> Place:
    return TopicPartition(topic, partition), GroupId(group)


def _pack(fields: list[object]) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def _unpack(packed: bytes) -> object:
    try:
        return msgpack.unpackb(packed)
    except ValueError:
        return None


def _malformed(service: str) -> InvalidRequest:
    return InvalidRequest(f"a broker of another version has sent a {service} that is not understood here")
