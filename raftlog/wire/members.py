"""The operations of members of a consumer group."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire.groups import (
    GroupHeartbeat,
    HeartbeatGroup,
    JoinedGroup,
    JoinGroup,
    PolledGroup,
    PollGroup,
    SyncedGroup,
    SyncGroup,
)
from raftlog.wire.operation import Leader, Nothing, Operation

_OF_MEMBER = (
    errors.GroupNotFound,
    errors.MemberNotFound,
    errors.StaleGeneration,
    errors.RebalanceInProgress,
    errors.Overloaded,
    errors.QuotaExceeded,
)

JOIN = Operation(
    name="members.join",
    request="POST /v1/groups/{group}/members",
    summary="Join a group",
    text=(
        "Waits until all members have joined. If the response is lost, repeat the join with the same "
        "`member_id`. A member that sends the current `generation` requests a rebalance."
    ),
    leader=Leader.GROUP,
    body=JoinGroup,
    answer=JoinedGroup,
    success={200: "the generation; the leader also gets all members"},
    errors=(
        errors.Conflict,
        errors.RebalanceInProgress,
        errors.Overloaded,
        errors.QuotaExceeded,
    ),
)

SYNC = Operation(
    name="members.sync",
    request="POST /v1/groups/{group}/members/{member}:sync",
    summary="Send the plan, or get the member's partitions",
    text="The leader sends the plan; followers wait for it.",
    leader=Leader.GROUP,
    body=SyncGroup,
    answer=SyncedGroup,
    success={200: "the member's partitions"},
    errors=_OF_MEMBER,
)

HEARTBEAT = Operation(
    name="members.heartbeat",
    request="POST /v1/groups/{group}/members/{member}:heartbeat",
    summary="Keep a membership alive",
    text="With `wait` the response is sent as soon as a rebalance begins.",
    leader=Leader.GROUP,
    body=HeartbeatGroup,
    answer=GroupHeartbeat,
    success={200: "`continue`, or `rejoin`: join again"},
    errors=_OF_MEMBER,
)

LEAVE = Operation(
    name="members.leave",
    request="DELETE /v1/groups/{group}/members/{member}",
    summary="Leave a group",
    text="The other members learn of it at their next heartbeats.",
    leader=Leader.GROUP,
    answer=Nothing,
    success={204: "the member has left"},
    errors=(errors.GroupNotFound,),
)

POLL = Operation(
    name="members.poll",
    request="POST /v1/groups/{group}/members/{member}:poll",
    summary="Heartbeat, acknowledge and fetch in one request",
    text=(
        "Joins automatically if needed; the broker makes the plan. Send the `positions` of the "
        "response as `ack` of the next request, once the records are processed."
    ),
    leader=Leader.GROUP,
    body=PollGroup,
    answer=PolledGroup,
    success={200: "records of the member's partitions"},
    errors=(
        errors.TopicNotFound,
        errors.PartitionNotFound,
        errors.OffsetOutOfRange,
        errors.UndecodableBatch,
        errors.ArchiveDamaged,
        errors.ArchiveUnavailable,
        errors.Conflict,
        errors.OffsetsPending,
        errors.Overloaded,
        errors.QuotaExceeded,
        errors.ConnectionLost,
    ),
)
