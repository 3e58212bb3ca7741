"""The messages between the members of a Raft group. Every message carries its term.

Late, repeated and reordered messages are harmless: the receiver can handle each message by itself.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from raftlog.core.entries import EntrySpan
from raftlog.core.membership import Membership
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term

NO_ROUND: Final = 0  # the round of a reply that echoes no heartbeat of its term


class VoteRequest(Struct, frozen=True, kw_only=True):
    """A candidate requests a vote (Raft 5.2), or asks in a pre-vote whether it would get one (thesis 9.6)."""

    term: Term
    last: EntryId
    is_pre_vote: bool = False
    is_transfer: bool = False  # the leader itself requested this election (thesis 3.10): no stickiness


class VoteReply(Struct, frozen=True, kw_only=True, array_like=True):
    """The reply to the ``VoteRequest`` of term ``asked``; ``term`` is the voter's own term."""

    term: Term
    asked: Term
    granted: bool
    is_pre_vote: bool = False


class AppendRequest(Struct, frozen=True, kw_only=True):
    """Entries that follow the entry ``previous``; a request without spans is a probe (Raft 5.3)."""

    term: Term
    previous: EntryId
    spans: tuple[EntrySpan, ...]
    commit_index: Index


class AppendReply(Struct, frozen=True, kw_only=True, array_like=True):
    """The answer to an ``AppendRequest``.

    Accepted: the follower's log durably equals the leader's up to ``match_index``. Rejected: ``match_index``
    is the ``previous.index`` that did not match, and ``hint`` is the follower's newest entry at or before it
    that may match (conflict hint by term).

    ``rejoining`` is 0, or the incarnation of a follower that may have lost entries that it acknowledged: its
    replies count towards no quorum.
    """

    term: Term
    accepted: bool
    match_index: Index
    hint: EntryId | None = None
    rejoining: int = 0


class Heartbeat(Struct, frozen=True, kw_only=True):
    """A sign that the leader is alive.

    A node packs the heartbeats of all its groups, of fixed size, together. ``commit_index`` is at most the
    last index that the receiver was known to hold, or the entry before the leader's log if that is later.
    ``commit_term`` is the term of the entry at ``commit_index``: a receiver without this entry commits
    nothing. The reply echoes ``round``, which proves leadership for reads (ReadIndex, thesis 6.4).
    ``quiesces``: no work is outstanding, and no heartbeat follows until the next input.
    """

    term: Term
    commit_index: Index
    round: int
    quiesces: bool = False
    commit_term: Term = BEFORE_LOG.term


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """A sign that the follower is alive. ``round``: the round of a heartbeat of this term, or ``NO_ROUND``.

    ``rejoining`` has the meaning that it has in ``AppendReply``.
    """

    term: Term
    round: int
    rejoining: int = 0


class RejoinResponse(Struct, frozen=True, kw_only=True, array_like=True):
    """The leader's answer to a rejoining follower: its log must reach ``last`` before its replies count.

    A log that reaches ``last`` holds all entries that the follower may have acknowledged: a quorum has
    confirmed the leader since the leader heard of the incarnation ``rejoining``.
    """

    term: Term
    rejoining: int
    last: Index


class TimeoutNow(Struct, frozen=True, kw_only=True, array_like=True):
    """An order to hold an election at once: the leader transfers leadership (thesis 3.10).

    ``commit_index`` and ``commit_term`` have the meaning that they have in ``Heartbeat``. A new leader whose
    whole log is committed appends no leader change record.
    """

    term: Term
    commit_index: Index = BEFORE_LOG.index
    commit_term: Term = BEFORE_LOG.term


class SnapshotOffer(Struct, frozen=True, kw_only=True):
    """An offer of a snapshot: the leader's log no longer has the entries that the follower needs (Raft 7).

    The offer is sent in place of entries. After the follower has installed the snapshot, it replies with an
    ``AppendReply`` that accepts.
    """

    term: Term
    snapshot: EntryId  # the entry just before the leader's log
    membership: Membership  # in force at the snapshot


Message = (
    VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | RejoinResponse
    | TimeoutNow
    | SnapshotOffer
)


class Envelope(Struct, frozen=True):
    """A message and its receiver."""

    to: NodeId
    message: Message
