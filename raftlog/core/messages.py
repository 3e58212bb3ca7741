"""What members of a Raft group say to one another. Every message carries its term.

Stale, duplicated and reordered messages are harmless: each says enough about itself to be
judged alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.core.entries import EntrySpan
from raftlog.core.membership import Membership
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote (Raft 5.2), or in a pre-vote whether it would get one (thesis 9.6)."""

    term: Term
    last: EntryId
    is_pre_vote: bool = False
    is_transfer: bool = False  # the leader itself asked for this election (thesis 3.10): no stickiness


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteReply:
    """The answer to the ``VoteRequest`` of term ``asked``, and to no other; ``term`` is the voter's own."""

    term: Term
    asked: Term
    granted: bool
    is_pre_vote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """Entries that follow ``previous``; with no spans it is a probe (Raft 5.3)."""

    term: Term
    previous: EntryId
    spans: tuple[EntrySpan, ...]
    commit_index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReply:
    """The answer to an ``AppendRequest``.

    Accepted: the follower's log equals the leader's up to ``match_index``, durably. Rejected:
    ``match_index`` is the ``previous.index`` that did not match and ``hint`` the follower's
    newest entry at or before it that may match (conflict hint by term).

    ``rejoining`` is 0, or the incarnation of a follower that may have lost entries it acknowledged: its
    replies count towards no quorum.
    """

    term: Term
    accepted: bool
    match_index: Index
    hint: EntryId | None = None
    rejoining: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The leader lives. Fixed size, so that a node packs those of all its groups into one message.

    ``commit_index`` never passes what the receiver is known to hold. ``round`` is echoed: it
    proves leadership for reads (ReadIndex, thesis 6.4). ``falls_silent`` says that nothing is
    outstanding and that no heartbeat follows until something happens.
    """

    term: Term
    commit_index: Index
    round: int
    falls_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """The follower lives. ``round`` is that of a heartbeat of this term, or 0.

    ``rejoining`` as in ``AppendReply``.
    """

    term: Term
    round: int
    rejoining: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinResponse:
    """The follower ``rejoining`` has what it may have acknowledged once its log equals ours up to ``last``.

    Sent by a leader that was confirmed after it had heard of this incarnation.
    """

    term: Term
    rejoining: int
    last: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """Hold an election at once: the leader hands over (thesis 3.10).

    ``commit_index`` never passes what the receiver holds. A successor that knows all it has to be
    committed need not append a leader change record.
    """

    term: Term
    commit_index: Index = BEFORE_LOG.index


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOffer:
    """What the follower lacks is no longer in the leader's log: it must begin with this snapshot (Raft 7).

    Sent in place of entries. The answer is an ``AppendReply`` that accepts, once the follower has it.
    """

    term: Term
    snapshot: EntryId  # the entry just before the leader's log
    membership: Membership  # the one in force there


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


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message and the member it goes to."""

    to: NodeId
    message: Message
