"""Requests to the coordinator of a group, and its replies.

Brokers send requests and replies to each other as msgpack, so a new field needs a default. Every request may
be repeated.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from groups.records import CommittedOffset, Group
from queues.requests import QueueReply, QueueRequest, ReadQueue, Receive, Settled

Plan = dict[str, dict[str, tuple[int, ...]]]
"""Assigned partitions by member and topic."""


class _Request(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    group: str


class Join(_Request, tag="join", frozen=True, kw_only=True):
    """Become a member, or join again. ``generation`` is the newest generation that the member knows.

    A member that joins again with an older generation gets the answer that it missed. A member that joins
    again with the current generation requests a rebalance.
    """

    member_id: str
    topics: tuple[str, ...]
    strategies: tuple[str, ...] = ("range",)
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    metadata: bytes = b""
    instance_id: str = ""
    client: str = ""
    generation: int = -1
    owned: dict[str, tuple[int, ...]] | None = None  # in ``generation``; None: as the coordinator has stored
    tags: tuple[str, ...] = ()  # sorted; records with any of these; with three empty lists: all records
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Sync(_Request, tag="sync", frozen=True, kw_only=True):
    """Get the assignment of a member.

    The group's leader sends the plan, or asks the coordinator to make the plan (``is_auto``).
    """

    member_id: str
    generation: int
    plan: Plan | None = None
    is_auto: bool = False


class Heartbeat(_Request, tag="heartbeat", frozen=True, kw_only=True):
    """Extend the session of a member. The answer waits up to ``wait_ms`` for a rebalance."""

    member_id: str
    generation: int
    wait_ms: int = 0


class Leave(_Request, tag="leave", frozen=True, kw_only=True):
    """Leave the group."""

    member_id: str


class OffsetCommit(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The offset to commit for one partition: the next offset to read."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class _Offsets(_Request, frozen=True, kw_only=True):
    """Offsets from a member of a generation, or, for a group without members, from any client."""

    offsets: tuple[OffsetCommit, ...]
    member_id: str = ""
    generation: int = -1


class Commit(_Offsets, tag="commit", frozen=True, kw_only=True):
    """Commit offsets of a group.

    Within a generation, an offset below the committed offset changes nothing unless ``may_rewind``. With
    ``is_forced``, for operators, the group may have members.
    """

    may_rewind: bool = False
    is_forced: bool = False
    client: str = ""  # address of the client


class AddOffsets(_Offsets, tag="add_offsets", frozen=True, kw_only=True):
    """Store offsets of a transaction that this group has joined; they wait for the end of the transaction.

    Within a transaction, and within a generation, an offset below the stored offset changes nothing.
    """

    producer_id: int
    epoch: int
    transaction: str  # readable name
    client: str = ""  # address of the client


class EndOffsets(_Request, tag="end_offsets", frozen=True, kw_only=True):
    """Commit or drop the offsets that a transaction has added.

    Afterwards the transaction cannot add offsets.
    """

    producer_id: int
    epoch: int
    is_commit: bool


class ReadGroup(_Request, tag="read", frozen=True, kw_only=True):
    """Read the current members and committed offsets of a group."""


class DeleteOffsets(_Request, tag="delete_offsets", frozen=True, kw_only=True):
    """Delete the committed offsets of these partitions; refused if members consume one of the topics."""

    targets: tuple[tuple[str, int], ...]


class DeleteGroup(_Request, tag="delete", frozen=True, kw_only=True):
    """Delete a group without members, with its offsets."""


Request = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | Commit
    | AddOffsets
    | EndOffsets
    | ReadGroup
    | DeleteOffsets
    | DeleteGroup
    | QueueRequest
)
READS: Final = (ReadGroup, ReadQueue)
"""Classes of requests that write nothing."""
MayWait = Join | Sync | Heartbeat | Leave | Receive
"""Requests whose answers may wait for other members, for the rest time of a large group, or for jobs."""


def refuses(reply: object) -> bool:
    """Whether a reply reports tokens as refused because their leases had ended."""
    return isinstance(reply, Settled) and bool(reply.lost)


def may_wait(request: MayWait) -> bool:
    """Whether the answer may wait for actions of other clients, not only for a commit."""
    return not isinstance(request, Heartbeat | Receive) or request.wait_ms > 0


class MemberInfo(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One group member, as the group's leader receives it in order to make the plan."""

    member_id: str
    topics: tuple[str, ...]
    metadata: bytes
    instance_id: str
    owned: dict[str, tuple[int, ...]]
    owned_generation: int


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined", kw_only=True):
    """Reply to a member of this generation. ``members`` is for the group's leader only."""

    member_id: str
    generation: int
    leader: str
    strategy: str
    members: tuple[MemberInfo, ...] = ()
    partition_counts: dict[str, int] = {}


class Synced(msgspec.Struct, frozen=True, array_like=True, tag="synced", kw_only=True):
    """The member's partitions in this generation, and the tags of the records that it reads there."""

    generation: int
    assignment: dict[str, tuple[int, ...]]
    tags: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat", kw_only=True):
    """The next step of a member: join again, or continue."""

    must_rejoin: bool


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Reply to a request that was carried out and has no other result."""


class PendingOffset(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """An offset that waits for the end of a transaction."""

    topic: str
    partition: int
    offset: CommittedOffset  # written if the transaction commits
    transaction: str


class GroupView(msgspec.Struct, frozen=True, array_like=True, tag="view", kw_only=True):
    """State of a group. ``offsets`` has topic, partition and committed offset of each row."""

    group: Group
    state: Literal["empty", "rebalancing", "stable"]
    offsets: tuple[tuple[str, int, CommittedOffset], ...]
    pending: tuple[PendingOffset, ...] = ()


class TopicGroup(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A group's members that subscribe to a topic, and the partitions in which the group has an offset."""

    group: str
    members: int
    partitions: int
    is_queue: bool
    open_jobs: int


Reply = Joined | Synced | Beat | Done | GroupView | QueueReply
