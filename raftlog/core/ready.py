"""What a Raft group asks the world to do."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from raftlog.core.entries import EntrySpan
from raftlog.core.membership import NOBODY, Membership, MembershipEntry
from raftlog.core.messages import Envelope
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term, Token, WriteId


class Role(enum.Enum):
    """What a member is doing at the moment."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class HardState:
    """What a voter must never forget. The commit index is not part of it.

    ``is_rejoining``: it may have forgotten already. A replica that begins empty in a group that is older
    gives no vote and counts towards no quorum until a confirmed leader has said what its log must hold.
    """

    term: Term
    voted_for: NodeId | None
    is_rejoining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What storage remembers when a replica opens: enough to rebuild the core."""

    hard_state: HardState
    membership: Membership  # in force just before the log, at ``snapshot``
    terms: tuple[EntryId, ...]  # the first entry of each term in the log, oldest first
    snapshot: EntryId  # the entry just before the log; BEFORE_LOG at birth
    last: EntryId  # the newest entry; equal to ``snapshot`` when the log is empty
    commit_hint: Index  # known to be committed when last noted; -1 when nothing was
    memberships: tuple[MembershipEntry, ...] = ()  # those in the log, oldest first
    forgotten: EntryId = BEFORE_LOG  # the newest entry of a former life of this replica, which was deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What must become durable, in this order: hard state, truncation, entries.

    A crash may keep any prefix of it; a write that has not finished promised nothing. Where there are no
    ``spans``, ``send_after`` stands on the hard state alone, and may leave with ``HardStateSaved``.
    """

    write_id: WriteId
    hard_state: HardState | None = None
    truncate_from: Index | None = None
    spans: tuple[EntrySpan, ...] = ()
    send_after: tuple[Envelope, ...] = ()  # promises: they may leave once this is durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """Read ``first..last`` from storage and send them to ``to`` as one AppendRequest.

    ``first > last`` asks for an empty request, a probe. A driver that sends less, to respect a
    limit of bytes, cuts between batches and says so with ``AppendCut``. So does one that reads the entries
    from the disk: what is ordered for the same peer until then is not sent.
    """

    to: NodeId
    term: Term
    previous: EntryId
    first: Index
    last: Index
    commit_index: Index


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Get ``snapshot`` from ``leader``, whose log begins after it, and say ``SnapshotInstalled``.

    Comes again while we lack it: a transfer that runs goes on, one that has failed begins anew. Where
    ``leader`` or ``snapshot`` differ, the older transfer is of no use any more.
    """

    leader: NodeId
    snapshot: EntryId
    membership: Membership  # the one in force there


@dataclass(frozen=True, slots=True)
class Appended:
    """The proposal stands in the log from ``id`` on (``id.index`` is its first index)."""

    token: Token
    id: EntryId


@dataclass(frozen=True, slots=True)
class ReadConfirmed:
    """A read that waits until ``index`` is applied sees everything acknowledged before it was asked for."""

    token: Token
    index: Index


class RefusalReason(enum.Enum):
    """Why a request did not happen; the values are for people."""

    NOT_LEADER = "this member does not lead"
    HANDING_OVER = "leadership is being handed over; ask the next leader"
    CHANGE_PENDING = "an earlier membership change is not finished; wait for it"
    NO_CHANGE = "target is the membership in force"
    NO_VOTERS = "target.voters is empty; name at least one"
    STRANGERS = "target.voters names too many that do not know it yet; make them learners first, or wait"
    VOTING_LEARNER = "target.learners names a voter; name each member once"
    JOINT_TARGET = "target.outgoing is not empty; name only what shall be in the end"


@dataclass(frozen=True, slots=True)
class Refused:
    """The request did not happen here and never will: ask ``leader`` instead, if it is not us."""

    token: Token
    leader: NodeId | None
    reason: RefusalReason = RefusalReason.NOT_LEADER


Settled = Appended | ReadConfirmed | Refused


@dataclass(frozen=True, slots=True)
class RoleChange:
    """The member's role, term or known leader is new."""

    role: Role
    term: Term
    leader: NodeId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All work that has piled up; what is not done now is never offered again."""

    write: Write | None = None
    send: tuple[Envelope, ...] = ()
    replicate: tuple[Replicate, ...] = ()
    settled: tuple[Settled, ...] = ()
    commit_index: Index | None = None  # set when it has risen
    role_change: RoleChange | None = None
    membership: Membership | None = None  # set when another one is in force
    fetch_snapshot: FetchSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftStatus:
    """One member as metrics and people see it."""

    role: Role
    term: Term
    leader: NodeId | None
    last: EntryId
    durable_index: Index
    commit_index: Index
    match_index: Mapping[NodeId, Index]  # each voter's, our own durable one too; empty unless leader
    heard_ticks_ago: Mapping[NodeId, int]  # ticks since each peer's last reply; empty unless leader
    is_asleep: bool  # nothing outstanding: needs no ticks until the next input
    membership: Membership = (
        NOBODY  # in force; a change to it is finished once ``membership_index`` is committed
    )
    membership_index: Index = BEFORE_LOG.index  # where it stands in the log
    learner_match_index: Mapping[NodeId, Index] = field(default_factory=dict)  # empty unless leader
    awaiting_snapshot: frozenset[NodeId] = frozenset()  # peers that lack entries from before our log
    is_rejoining: bool = False  # counts towards no quorum; see ``HardState``
    rejoining: Mapping[NodeId, frozenset[NodeId]] = field(
        default_factory=dict
    )  # peers that rejoin, and the voters that have not confirmed this leader for them; empty unless leader
