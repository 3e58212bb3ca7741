"""Handles operations on one partition: delete or archive records, move leadership or replicas, recover
without a majority.

Leaves to others: which changes are allowed and how they are made (``partitions.replica.deletion``,
``partitions.replica.archiving``, ``partitions.reassignment.admin``).
"""

from __future__ import annotations

from aiohttp import web

from api.http.bodies import read_json
from api.http.routes import (
    PARTITION,
    TOPIC,
    Call,
    Route,
    duration,
    json_response,
)
from api.http.steps import Steps
from api.resources import partition_bodies
from partitions.metadata.move_planner import MoveReplicas
from raftlog import errors
from raftlog.records.control import Archived
from raftlog.types import NodeId, Offset, Term, TopicPartition
from raftlog.wire import bodies, partitions

LEADER_WAIT_MS = 10_000  # longest wait for the election of a recovered partition


async def transfer_leadership(call: Call) -> web.StreamResponse:
    """Transfer the leadership of the partition; the response comes once the other broker leads."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.TransferLeadership)
    leader, term = await call.services.admin.transfer_leadership(
        target,
        None if wanted.to is None else NodeId(wanted.to),
        call.services.limits.control_timeout_ms,
        None if wanted.leader_epoch is None else Term(wanted.leader_epoch),
    )
    return json_response(bodies.Leadership(target.topic, target.partition, leader, term))


async def add_replica(call: Call) -> web.StreamResponse:
    """Add a replica on a broker to the partition."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.OneReplica)
    return await _move(
        call, target, MoveReplicas(target.topic, target.partition, add=NodeId(wanted.broker_id))
    )


async def remove_replica(call: Call) -> web.StreamResponse:
    """Remove the replica on a broker from the partition."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.OneReplica)
    return await _move(
        call, target, MoveReplicas(target.topic, target.partition, remove=NodeId(wanted.broker_id))
    )


async def set_replicas(call: Call) -> web.StreamResponse:
    """Replace the replicas of the partition by replicas on the brokers that the request lists."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.SetReplicas)
    replicas = tuple(NodeId(node) for node in wanted.replicas)
    return await _move(call, target, MoveReplicas(target.topic, target.partition, replicas))


async def unsafe_recover(call: Call) -> web.StreamResponse:
    """Recover the partition from the log of one surviving replica, without a majority."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.UnsafeRecover)
    admin, steps = call.services.admin, Steps()
    timeout_ms = call.services.limits.control_timeout_ms
    await steps.take(admin.recover_unsafely(target, wanted.confirm, timeout_ms))
    await steps.take(admin.until_led(target, LEADER_WAIT_MS))
    return json_response(await steps.take(partition_bodies.described(call, target)))


async def delete_before(call: Call) -> web.StreamResponse:
    """Delete the records below an offset; the response comes once no reader gets these records."""
    target = _of_user(call, "its records cannot be deleted")
    wanted = await read_json(call, bodies.DeleteBefore)
    start = await call.services.gateway.delete_before(
        target, Offset(wanted.offset), timeout_ms=call.services.limits.control_timeout_ms
    )
    return json_response(bodies.RecordsDeleted(target.partition, start))


async def set_archived(call: Call) -> web.StreamResponse:
    """Set the offset up to which a partition is archived."""
    target = _of_user(call, "it has no archive")
    wanted = await read_json(call, bodies.SetArchived)
    offset = await call.services.gateway.set_archived(
        target,
        Archived(wanted.offset, wanted.allow_lower),
        timeout_ms=call.services.limits.control_timeout_ms,
    )
    return json_response(bodies.ArchivedUpTo(target.partition, offset))


def _of_user(call: Call, refusal: str) -> TopicPartition:
    """Return the partition of the path. Refuses partitions of internal topics."""
    topic, target = call.partition()
    if topic.is_internal:
        raise errors.InvalidRequest(f"topic {topic.name} is internal; {refusal}", field="topic")
    return target


async def _move(call: Call, target: TopicPartition, wish: MoveReplicas) -> web.StreamResponse:
    limits = call.services.limits
    wait_ms, admin, steps = call.wait_ms(), call.services.admin, Steps()
    await steps.take(admin.change_replicas(wish, limits.control_timeout_ms))
    is_settled = await steps.take(admin.until_settled(target, wait_ms))
    body = await steps.take(partition_bodies.described(call, target))
    return json_response(body, 200 if is_settled else 202)


_WAIT = duration("wait", "longest wait for the end of the move, such as `30s`", lambda _: 0)


ROUTES = (
    Route(partitions.DELETE_BEFORE, delete_before, (TOPIC, PARTITION)),
    Route(partitions.SET_ARCHIVED, set_archived, (TOPIC, PARTITION)),
    Route(partitions.TRANSFER_LEADERSHIP, transfer_leadership, (TOPIC, PARTITION)),
    Route(partitions.ADD_REPLICA, add_replica, (TOPIC, PARTITION, _WAIT)),
    Route(partitions.REMOVE_REPLICA, remove_replica, (TOPIC, PARTITION, _WAIT)),
    Route(partitions.SET_REPLICAS, set_replicas, (TOPIC, PARTITION, _WAIT)),
    Route(partitions.UNSAFE_RECOVER, unsafe_recover, (TOPIC, PARTITION)),
)
