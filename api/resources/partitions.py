"""Operations on one partition: delete or archive records, transfer leadership, move replicas, recover it.

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
    Handler,
    Route,
    duration,
    json_answer,
    json_response,
)
from api.http.steps import Steps
from api.resources import partition_bodies
from partitions.metadata.move_planner import MoveReplicas
from raftlog import errors
from raftlog.records.control import Archived
from raftlog.types import NodeId, Offset, TopicPartition
from raftlog.wire import bodies, media_types, paths
from raftlog.wire.limits import REPLICAS_MAX

LEADER_WAIT_MS = 10_000  # how long to wait for the election of a recovered partition


async def transfer_leadership(call: Call) -> web.StreamResponse:
    """Transfers leadership; responds once the other broker leads."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.TransferLeadership)
    leader, term = await call.services.admin.transfer_leadership(
        target,
        None if wanted.to is None else NodeId(wanted.to),
        call.services.limits.control_timeout_ms,
    )
    return json_response(bodies.LeadershipBody(target.topic, target.partition, leader, term))


async def add_replica(call: Call) -> web.StreamResponse:
    """Adds a replica."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.OneReplica)
    return await _move(
        call, target, MoveReplicas(target.topic, target.partition, add=NodeId(wanted.broker_id))
    )


async def remove_replica(call: Call) -> web.StreamResponse:
    """Removes a replica."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.OneReplica)
    return await _move(
        call, target, MoveReplicas(target.topic, target.partition, remove=NodeId(wanted.broker_id))
    )


async def set_replicas(call: Call) -> web.StreamResponse:
    """Sets all replicas."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.SetReplicas)
    replicas = tuple(NodeId(node) for node in wanted.replicas)
    return await _move(call, target, MoveReplicas(target.topic, target.partition, replicas))


async def unsafe_recover(call: Call) -> web.StreamResponse:
    """Makes the survivor's log the log of the partition."""
    _, target = call.partition()
    wanted = await read_json(call, bodies.UnsafeRecover)
    admin, steps = call.services.admin, Steps()
    timeout_ms = call.services.limits.control_timeout_ms
    await steps.take(admin.recover_unsafely(target, wanted.confirm, timeout_ms))
    await steps.take(admin.until_led(target, LEADER_WAIT_MS))
    return json_response(await steps.take(partition_bodies.described(call, target)))


async def delete_before(call: Call) -> web.StreamResponse:
    """Deletes the records below an offset; responds once no reader gets them any more."""
    wanted = await read_json(call, bodies.DeleteBefore)
    target = await _records_of(call, wanted.partition, "its records cannot be deleted")
    start = await call.services.gateway.delete_before(
        target, Offset(wanted.offset), timeout_ms=call.services.limits.control_timeout_ms
    )
    call.target = target
    return json_response(bodies.RecordsDeleted(target.partition, start))


async def archived_up_to(call: Call) -> web.StreamResponse:
    """Sets up to which offset a partition is archived."""
    wanted = await read_json(call, bodies.SetArchivedUpTo)
    target = await _records_of(call, wanted.partition, "it has no archive")
    offset = await call.services.gateway.set_archived(
        target,
        Archived(wanted.offset, wanted.allow_lower),
        timeout_ms=call.services.limits.control_timeout_ms,
    )
    call.target = target
    return json_response(bodies.ArchivedUpTo(target.partition, offset))


async def _records_of(call: Call, partition: int, refusal: str) -> TopicPartition:
    """A partition of the topic in the path. Internal topics are refused."""
    topic = call.topic()
    if topic.is_internal:
        raise errors.InvalidRequest(f"topic {topic.name} is the system's own; {refusal}", field="topic")
    await call.hear_of_partitions([(topic.name, partition)])
    return TopicPartition(topic.name, partition)


async def _move(call: Call, target: TopicPartition, wish: MoveReplicas) -> web.StreamResponse:
    limits = call.services.limits
    wait_ms, admin, steps = call.wait_ms(), call.services.admin, Steps()
    await steps.take(admin.change_replicas(wish, limits.control_timeout_ms))
    is_settled = await steps.take(admin.until_settled(target, wait_ms))
    body = await steps.take(partition_bodies.described(call, target))
    return json_response(body, 200 if is_settled else 202)


_WAIT = duration("wait", "how long to wait until the move is complete, such as `30s`", lambda _: 0)
_ERRORS = (
    errors.InvalidRequest,
    errors.UnknownTopic,
    errors.UnknownPartition,
    errors.Conflict,
    errors.UnsupportedMediaType,
    errors.RecordTooLarge,
    errors.NoLeader,
    errors.CommitUnknown,
)
_MOVE_ERRORS = (*_ERRORS, errors.PreconditionFailed)
_MOVED = {
    200: json_answer("the move is complete", bodies.PartitionBody),
    202: json_answer("the move is in progress; see `reassignment`", bodies.PartitionBody),
}


def _move_route(
    path: str, handler: Handler, body: type[bodies.Request], summary: str, description: str
) -> Route:
    """The three ways to set a target differ only in their body."""
    return Route(
        "POST",
        path,
        handler,
        summary,
        description,
        (TOPIC, PARTITION, _WAIT),
        {media_types.JSON: body},
        _MOVED,
        _MOVE_ERRORS,
    )


ROUTES = (
    Route(
        "POST",
        paths.DELETE_BEFORE,
        delete_before,
        "Delete the oldest records of a partition",
        "All records below `offset`. Once the response is sent they are refused with 410 at every broker, "
        "also after a fail-over; disk space is freed by whole segments at the next check of retention. If "
        "the log begins at `offset` or above, nothing changes. The offset may be the high watermark at "
        "most, and the first offset of the oldest open transaction at most (409). Compacted topics are "
        "refused, unless `cleanup.policy` is `compact,delete`, and so are internal ones. Where "
        "`retention.archive.required` is set, records that are not archived are refused (409).",
        (TOPIC,),
        {media_types.JSON: bodies.DeleteBefore},
        {200: json_answer("where the log begins now", bodies.RecordsDeleted)},
        (*_ERRORS, errors.Overloaded, errors.StorageFull),
    ),
    Route(
        "POST",
        paths.ARCHIVED_UP_TO,
        archived_up_to,
        "Set up to which offset a partition is archived",
        "All records below `offset` are in an archive. Where `retention.archive.required` is set, retention "
        "keeps the others. An offset below the one before changes nothing, unless `allow_lower` is true. The "
        "offset may be the last stable offset at most. Internal topics are refused.",
        (TOPIC,),
        {media_types.JSON: bodies.SetArchivedUpTo},
        {200: json_answer("up to which offset it is archived now", bodies.ArchivedUpTo)},
        (*_ERRORS, errors.Overloaded, errors.StorageFull),
    ),
    Route(
        "POST",
        paths.TRANSFER_LEADERSHIP,
        transfer_leadership,
        "Move the leadership of a partition",
        "To the broker `to`, or to the most up-to-date replica. Responds once it leads.",
        (TOPIC, PARTITION),
        {media_types.JSON: bodies.TransferLeadership},
        {200: json_answer("the new leader", bodies.LeadershipBody)},
        (*_ERRORS, errors.LeadershipNotMoved),
        body_required=False,
    ),
    _move_route(
        paths.ADD_REPLICA,
        add_replica,
        bodies.OneReplica,
        "Add a replica",
        "It becomes a voter when it has caught up. An even number tolerates no more failures.",
    ),
    _move_route(
        paths.REMOVE_REPLICA,
        remove_replica,
        bodies.OneReplica,
        "Remove a replica",
        "Its files are deleted after a membership without it is committed.",
    ),
    _move_route(
        paths.SET_REPLICAS,
        set_replicas,
        bodies.SetReplicas,
        "Set all replicas",
        f"The general form: 1 to {REPLICAS_MAX} brokers, the preferred leader first. It replaces an "
        f"incomplete move.",
    ),
    Route(
        "POST",
        paths.UNSAFE_RECOVER,
        unsafe_recover,
        "Recover a partition whose majority is lost",
        "Without `confirm` it changes nothing: the 409 has the survivor, the possible loss, and the "
        "phrase to confirm.",
        (TOPIC, PARTITION),
        {media_types.JSON: bodies.UnsafeRecover},
        {200: json_answer("the recovered partition", bodies.PartitionBody)},
        _MOVE_ERRORS,
        body_required=False,
    ),
)
