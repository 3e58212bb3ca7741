"""The operations on consumer groups, with their bodies.

An offset in an acknowledgement or a commit is the next offset to read: the last consumed offset plus 1.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from raftlog import errors
from raftlog.wire import limits
from raftlog.wire.bodies import (
    Answer,
    Brief,
    Int64,
    Message,
    OffsetNumber,
    PartitionNumber,
    PartitionNumbers,
    Request,
    Tags,
    matching,
)
from raftlog.wire.operation import Leader, Nothing, Operation

MEMBER_ID_CHARACTERS_MAX = 249
TOPICS_MAX = 1_000  # per member
STRATEGIES_MAX = 16
METADATA_BYTES_MAX = 4_096
MEMBERS_MAX = 1_000  # per group
OFFSETS_MAX = 10_000  # per request
TRANSACTION_OFFSETS_MAX = 999  # per group

Name = Annotated[str, matching(limits.NAME_PATTERN)]
Duration = Int64 | Brief
"""Milliseconds, or a text with a unit such as ``10s``."""

Topics = Annotated[list[Name], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)]
Strategies = Annotated[list[Name], msgspec.Meta(min_length=1, max_length=STRATEGIES_MAX)]
Generation = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 53) - 1)]
LeaderEpoch = Annotated[int, msgspec.Meta(ge=-1, le=limits.INT64_MAX)]


class TopicPartitions(msgspec.Struct, forbid_unknown_fields=True):
    """A topic and a selection of its partitions."""

    topic: Name
    partitions: PartitionNumbers


ManyPartitions = Annotated[list[TopicPartitions], msgspec.Meta(max_length=TOPICS_MAX)]
"""Partitions of several topics."""


class JoinGroup(Request):
    """Body of ``POST /v1/groups/{group}/members``. Without ``member_id`` the broker chooses one.

    ``generation`` is the newest generation that the member knows, and ``owned`` are its partitions in that
    generation. The members read the records with any of ``tags``, all of ``tags_all`` and none of
    ``tags_none``; an empty list sets no condition. All members must send equal lists.
    """

    topics: Topics
    strategies: Strategies = msgspec.field(default_factory=lambda: ["range"])
    session_timeout: Duration = "10s"
    rebalance_timeout: Duration = "60s"
    metadata: Raw | UnsetType = UNSET
    member_id: Name | None = None
    instance_id: Name | None = None
    generation: Generation = -1
    owned: ManyPartitions | None = None
    tags: Tags = msgspec.field(default_factory=list)
    tags_all: Tags = msgspec.field(default_factory=list)
    tags_none: Tags = msgspec.field(default_factory=list)


class GroupMemberInfo(Answer, omit_defaults=True):
    """One member of the group, as the group's leader gets it to compute an assignment."""

    member_id: str
    topics: list[str]
    metadata: Raw
    owned: list[TopicPartitions]
    owned_generation: int
    instance_id: str = ""


class JoinedGroup(Answer, omit_defaults=True):
    """The generation that the member has joined.

    Only the group's leader receives ``members`` and ``partition_counts``.
    """

    member_id: str
    generation: int
    role: Literal["leader", "follower"]
    leader: str
    strategy: str
    heartbeat_interval_ms: int
    members: list[GroupMemberInfo] = msgspec.field(default_factory=list)
    partition_counts: dict[str, int] = msgspec.field(default_factory=dict)


class SyncGroup(Request):
    """Body of ``:sync``.

    The group's leader sends ``assignments``, or ``auto`` to let the broker compute the assignment.
    """

    generation: Generation
    assignments: (
        Annotated[dict[Name, ManyPartitions], msgspec.Meta(max_length=MEMBERS_MAX)] | Literal["auto"] | None
    ) = None


class SyncedGroup(Answer):
    """The partitions that the member gets in this generation."""

    generation: int
    assignment: list[TopicPartitions]


class HeartbeatGroup(Request):
    """Body of ``:heartbeat``."""

    generation: Generation


class GroupHeartbeat(Answer):
    """The next action of the member: continue, or rejoin the group."""

    action: Literal["continue", "rejoin"]


class Place(Request):
    """A partition, and the next offset to read from it."""

    topic: Name
    partition: PartitionNumber
    offset: OffsetNumber


Places = Annotated[list[Place], msgspec.Meta(max_length=OFFSETS_MAX)]


class PollGroup(Request):
    """Body of ``:poll``. ``positions`` are offsets at which to read instead of the committed offsets.

    ``topics``, ``tags``, ``tags_all``, ``tags_none`` and the timeouts are used when the poll joins the group,
    whose members have equal tags. ``reset`` is for partitions without a committed offset; with ``fail`` the
    poll fails for such a partition, and for a position whose record was deleted.
    """

    generation: Generation = -1
    ack: Places = msgspec.field(default_factory=list)
    positions: Places = msgspec.field(default_factory=list)
    topics: Topics | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.RECORDS_MAX)] = 500
    wait: Duration = "5s"
    session_timeout: Duration = "30s"
    reset: Literal["earliest", "latest", "fail"] = "earliest"
    tags: Tags = msgspec.field(default_factory=list)
    tags_all: Tags = msgspec.field(default_factory=list)
    tags_none: Tags = msgspec.field(default_factory=list)


class DeletedRange(Answer):
    """Offsets from ``offset`` up to ``next_offset``, exclusive, deleted before the member had read them."""

    topic: str
    partition: int
    offset: int
    next_offset: int


class PolledGroup(Answer, omit_defaults=True):
    """Records of the member's partitions.

    If ``action`` is ``rejoin``, a rebalance is still running: poll again. To acknowledge, send ``positions``
    as ``ack`` of the next poll. ``ack_error`` is the code of the problem for which ``ack`` was not committed:
    the records are delivered again, perhaps to another member. ``deleted`` has the ranges of deleted offsets
    that this poll has skipped.
    """

    action: Literal["continue", "rejoin"]
    generation: int
    assignment: list[TopicPartitions]
    records: list[Message]
    positions: list[Place]
    ack_error: str = ""
    deleted: list[DeletedRange] = msgspec.field(default_factory=list)


class OffsetCommit(Request):
    """One offset to commit."""

    topic: Name
    partition: PartitionNumber
    offset: OffsetNumber
    leader_epoch: LeaderEpoch = -1
    metadata: Annotated[str, msgspec.Meta(max_length=limits.OFFSET_METADATA_CHARACTERS_MAX)] = ""


class MemberOffsets(Request):
    """Offsets to commit. A member sends its id and its generation.

    A request without a member id is accepted only if the group has no members.
    """

    offsets: Annotated[list[OffsetCommit], msgspec.Meta(min_length=1, max_length=OFFSETS_MAX)]
    member_id: Name | None = None
    generation: Generation = -1


class CommitOffsets(MemberOffsets):
    """Body of ``PUT /v1/groups/{group}/offsets``.

    Within a generation, an offset lower than the committed offset changes nothing, unless ``allow_rewind`` is
    true.
    """

    allow_rewind: bool = False


class AddOffsets(MemberOffsets, kw_only=True):
    """Body of ``POST /v1/transactions/{transaction}:add-offsets``: offsets for the transaction's commit.

    Within a transaction and a generation, an offset lower than the previously added offset of the partition
    changes nothing.
    """

    group: Name
    offsets: Annotated[list[OffsetCommit], msgspec.Meta(min_length=1, max_length=TRANSACTION_OFFSETS_MAX)]


class GroupOffset(Answer):
    """One committed offset and its lag.

    A field is null if its value is unknown because the partition has no leader now.
    """

    topic: str
    partition: int
    committed_offset: int
    last_consumed_offset: int
    high_watermark: int | None
    lag: int | None
    lag_seconds: float | None
    leader_epoch: int
    metadata: str
    timestamp: int
    generation: int
    member_id: str


class PendingOffset(Answer):
    """An offset that the commit of an open ``transaction`` will commit."""

    topic: str
    partition: int
    offset: int
    transaction: str


class GroupOffsetList(Answer):
    """Committed offsets, and pending offsets of open transactions, by topic and partition."""

    items: list[GroupOffset]
    pending: list[PendingOffset] = msgspec.field(default_factory=list)


class ResetOffsets(Request):
    """Body of ``:reset``. ``to`` is a position; ``shift`` is added to the committed offsets.

    Without ``topics`` and ``partitions`` all committed offsets of the group are reset; ``topics`` and
    ``partitions`` select some of them. With ``force`` the offsets are reset even if the group has members.
    """

    to: Brief | None = None
    shift: Int64 | None = None
    topics: Topics | None = None
    partitions: ManyPartitions | None = None
    force: bool = False


class OffsetChange(Answer):
    """The change of one committed offset by a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


class OffsetsReset(Answer):
    """The committed offsets that a reset changed, or with ``dry_run`` would change."""

    dry_run: bool
    items: list[OffsetChange]


class GroupMember(Answer, omit_defaults=True):
    """One member of a group."""

    member_id: str
    topics: list[str]
    assignment: list[TopicPartitions]
    strategies: list[str]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: Raw
    client: str
    instance_id: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    tags_all: list[str] = msgspec.field(default_factory=list)
    tags_none: list[str] = msgspec.field(default_factory=list)


class GroupDescription(Answer):
    """One group.

    ``lag`` is the sum and ``lag_seconds`` the maximum over all partitions; both are null if the lag of a
    partition is unknown.
    """

    group: str
    state: Literal["empty", "rebalancing", "stable"]
    generation: int
    leader: str
    strategy: str
    coordinator: int | None
    members: list[GroupMember]
    lag: int | None
    lag_seconds: float | None


class GroupSummary(Answer):
    """One group in a list."""

    group: str
    state: str
    members: int
    coordinator: int | None


class GroupList(Answer):
    """A page of groups, by name."""

    items: list[GroupSummary]
    next_page_token: str | None = None


class CoordinatorDescription(Answer):
    """The partition of ``__offsets`` that stores the group, and the broker that leads it."""

    partition: int
    broker_id: int
    http: str | None


class Rebalance(Answer):
    """One rebalance of a group, from ``began_at`` to its end."""

    generation: int
    reason: str
    began_at: int
    duration_ms: int
    members_before: int
    members_after: int


class RebalanceList(Answer):
    """The newest rebalances of a group, newest first."""

    items: list[Rebalance]


class DeleteGroupOffsets(Request):
    """Body of ``POST /v1/groups/{group}/offsets:delete``."""

    partitions: Annotated[list[TopicPartitions], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)]


_OF_OFFSETS = (
    errors.GroupNotFound,
    errors.TopicNotFound,
    errors.PartitionNotFound,
    errors.OffsetOutOfRange,
    errors.Conflict,
    errors.OffsetsPending,
    errors.Overloaded,
)

LIST = Operation(
    name="groups.list",
    request="GET /v1/groups",
    summary="List consumer groups",
    text="By name.",
    leader=Leader.GROUP,
    answer=GroupList,
    success={200: "a page"},
)

DESCRIBE = Operation(
    name="groups.describe",
    request="GET /v1/groups/{group}",
    summary="Describe a group",
    text="With its members, their partitions, and the lag in records and seconds.",
    leader=Leader.GROUP,
    answer=GroupDescription,
    success={200: "the group"},
    errors=(
        errors.GroupNotFound,
        errors.CommitUnknown,
    ),
)

DELETE = Operation(
    name="groups.delete",
    request="DELETE /v1/groups/{group}",
    summary="Delete a group",
    text="The group must have no members; its offsets are deleted, too.",
    leader=Leader.GROUP,
    answer=Nothing,
    success={204: "the group is deleted"},
    errors=(
        errors.Conflict,
        errors.GroupNotFound,
    ),
    may_repeat=False,
)

COORDINATOR = Operation(
    name="groups.coordinator",
    request="GET /v1/groups/{group}/coordinator",
    summary="Find a group's coordinator",
    text=(
        "The leader of partition `murmur2(group) % N` of `__offsets`, if it has a leader. Every broker "
        "forwards requests to it."
    ),
    leader=Leader.GROUP,
    answer=CoordinatorDescription,
    success={200: "the partition and its leader"},
    errors=(errors.CommitUnknown,),
)

REBALANCES = Operation(
    name="groups.rebalances",
    request="GET /v1/groups/{group}/rebalances",
    summary="List a group's rebalances",
    text="The newest first, each with reason, time and duration.",
    leader=Leader.GROUP,
    answer=RebalanceList,
    success={200: "the rebalances"},
    errors=(
        errors.GroupNotFound,
        errors.CommitUnknown,
    ),
)

OFFSETS = Operation(
    name="groups.offsets",
    request="GET /v1/groups/{group}/offsets",
    summary="Read committed offsets",
    text="With the lag of each, in records and in seconds, and the offsets in open transactions.",
    leader=Leader.GROUP,
    answer=GroupOffsetList,
    success={200: "the offsets, by topic and partition"},
    errors=(
        errors.GroupNotFound,
        errors.CommitUnknown,
        errors.MemberNotFound,
        errors.OffsetsPending,
    ),
)

COMMIT = Operation(
    name="groups.commit",
    request="PUT /v1/groups/{group}/offsets",
    summary="Commit offsets",
    text="All of them, or none. An offset is the next one to read.",
    leader=Leader.GROUP,
    body=CommitOffsets,
    answer=Nothing,
    success={204: "the offsets are committed"},
    errors=(*_OF_OFFSETS, errors.MemberNotFound, errors.StaleGeneration, errors.RebalanceInProgress),
)

RESET = Operation(
    name="groups.reset",
    request="POST /v1/groups/{group}/offsets:reset",
    summary="Move committed offsets",
    text=(
        "`to` is a number, `earliest`, `latest`, a time or `-100`; `shift` is a difference. The group must "
        "have no members, unless `force`."
    ),
    leader=Leader.GROUP,
    body=ResetOffsets,
    answer=OffsetsReset,
    success={200: "the changes"},
    errors=_OF_OFFSETS,
)

DELETE_OFFSETS = Operation(
    name="groups.delete_offsets",
    request="POST /v1/groups/{group}/offsets:delete",
    summary="Delete committed offsets",
    text="Only in partitions of topics that no member consumes.",
    leader=Leader.GROUP,
    body=DeleteGroupOffsets,
    answer=Nothing,
    success={204: "the offsets are deleted"},
    errors=_OF_OFFSETS,
)
