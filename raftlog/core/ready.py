"""The work that a core returns, and what its driver must do with it.

A driver owns the clock, the disk and the network. It repeats one loop::

    raft.step(some_input)
    while (ready := raft.take_ready()) is not None:
        carry out the ready

A ``Ready`` is handed out once: the driver carries out all of it before it takes the next one.

1. ``settled`` answers requests. The batches of an ``Appended`` proposal belong to the entries of ``write``.
2. ``write`` goes to the disk. The driver may start it and continue; when it is durable, it first sends
   ``write.send_after`` and then steps ``WriteFinished``.
3. ``replicate`` and ``send`` leave at once: they need not wait for ``write``. A driver that sends less of an
   append than ordered steps ``AppendCut``, and ``AppendDropped`` if it sends nothing.
4. ``commit_index`` has risen: the driver applies entries up to it.
5. ``fetch_snapshot`` names a snapshot to fetch. Before the driver replaces its log it asks
   ``Raft.may_install``; no input that may write is stepped until ``SnapshotInstalled``.
6. ``membership`` and ``role_change`` are news for the driver's own callers.

The driver must keep these rules, or acknowledged entries can be lost:

- Writes become durable in the order in which they were handed out. Only a hard state may be saved ahead of
  entries that wait for room: the driver then steps ``HardStateSaved``, and sends the ``send_after`` of the
  writes without entries that it covers.
- A message of ``send_after`` leaves only if its term is still the core's term: an entry acknowledged after a
  vote in a later term could be missing in the log that was voted for.
- The commit hint on disk never passes ``min(commit_index, durable_index)``.
- An input reports only what has happened: ``WriteFinished`` after the sync, ``LogTruncatedPrefix`` and
  ``SnapshotInstalled`` after the log begins there durably.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from raftlog.core.entries import EntrySpan
from raftlog.core.membership import NOBODY, Membership, MembershipEntry
from raftlog.core.messages import Envelope
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term, Token, WriteId


class Role(enum.Enum):
    """The role of a member of a Raft group."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class HardState(Struct, frozen=True):
    """State that a voter must keep across restarts; the commit index is not part of this state.

    ``is_rejoining``: the replica may have lost votes and entries. A replica that begins empty in an older
    group gives no vote and counts towards no quorum until its log holds the entries that a confirmed leader
    requires.
    """

    term: Term
    voted_for: NodeId | None
    is_rejoining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """State that storage returns when a replica opens: the input for a new core."""

    hard_state: HardState
    membership: Membership  # in force just before the log, at ``snapshot``
    terms: tuple[EntryId, ...]  # the first entry of each term in the log, oldest first
    snapshot: EntryId  # the entry just before the log; BEFORE_LOG in a new group
    last: EntryId  # the newest entry; equal to ``snapshot`` when the log is empty
    commit_hint: Index  # the newest commit index on disk; -1 if there is none
    memberships: tuple[MembershipEntry, ...] = ()  # those in the log, oldest first


class Write(Struct, frozen=True, kw_only=True):
    """State that must become durable, in this order: hard state, truncation, entries.

    A crash may keep any prefix of these three parts. Without ``spans``, ``send_after`` depends on the hard
    state alone, and may be sent with ``HardStateSaved``.
    """

    write_id: WriteId
    hard_state: HardState | None = None
    truncate_from: Index | None = None
    spans: tuple[EntrySpan, ...] = ()
    send_after: tuple[Envelope, ...] = ()  # may leave once this write is durable


class Replicate(Struct, frozen=True, kw_only=True):
    """An order to read ``first..last`` from storage and send these entries to ``to`` as one AppendRequest.

    ``first > last`` requests an empty append, a probe. A driver that sends fewer entries, to respect a limit
    of bytes, cuts between batches and steps ``AppendCut``. While a driver reads entries from the disk, it
    sends no other append that is ordered for the same peer, and steps ``AppendCut`` afterwards.
    """

    to: NodeId
    term: Term
    previous: EntryId
    first: Index
    last: Index
    commit_index: Index


class FetchSnapshot(Struct, frozen=True):
    """An order to fetch and install ``snapshot``; the log of ``leader`` begins after it.

    Afterwards the driver steps ``SnapshotInstalled``.

    The core repeats the order until then: the driver continues a running transfer, and starts a failed
    transfer again. If ``leader`` or ``snapshot`` differ, the order replaces the older one.
    """

    leader: NodeId
    snapshot: EntryId
    membership: Membership  # in force at the snapshot


class Appended(Struct, frozen=True):
    """A proposal was appended to the log, and is not yet committed; ``id.index`` is its first index."""

    token: Token
    id: EntryId


class ReadConfirmed(Struct, frozen=True):
    """A read was confirmed: once ``index`` is applied, it sees all entries acknowledged before
    its request.
    """

    token: Token
    index: Index


class RefusalReason(enum.Enum):
    """The reason why a request was refused; the values are texts for people."""

    NOT_LEADER = "this member does not lead"
    TRANSFERRING = "leadership is being transferred; ask the next leader"
    CHANGE_PENDING = "an earlier membership change is not finished; wait for it"
    NO_CHANGE = "target is the membership in force"
    NO_VOTERS = "target.voters is empty; name at least one"
    STRANGERS = "target.voters names too many members without the newest membership; add learners, or wait"
    VOTING_LEARNER = "target.learners names a voter; name each member once"
    JOINT_TARGET = "target.outgoing is not empty; name only the final voters and learners"


class Refused(Struct, frozen=True):
    """A request was refused: it had no effect and never will have one; ``leader`` may accept it."""

    token: Token
    leader: NodeId | None
    reason: RefusalReason = RefusalReason.NOT_LEADER


Settled = Appended | ReadConfirmed | Refused


class RoleChange(Struct, frozen=True):
    """The member's role, term or known leader has changed."""

    role: Role
    term: Term
    leader: NodeId | None


class Ready(Struct, frozen=True, kw_only=True):
    """All work since the last ready, in the order of the module's list; it is handed out once."""

    write: Write | None = None
    send: tuple[Envelope, ...] = ()
    replicate: tuple[Replicate, ...] = ()
    settled: tuple[Settled, ...] = ()
    commit_index: Index | None = None  # only if it has risen
    role_change: RoleChange | None = None
    membership: Membership | None = None  # only if another one is in force
    fetch_snapshot: FetchSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftStatus:
    """The state of one member, for metrics and people."""

    role: Role
    term: Term
    leader: NodeId | None
    last: EntryId
    durable_index: Index
    commit_index: Index
    match_index: Mapping[NodeId, Index]  # of each voter, also this member; empty unless leader
    heard_ticks_ago: Mapping[NodeId, int]  # ticks since each peer's last reply; empty unless leader
    is_quiescent: bool  # the member needs no ticks until the next input
    membership: Membership = (
        NOBODY  # in force; a change to it is finished once ``membership_index`` is committed
    )
    membership_index: Index = BEFORE_LOG.index  # the index of ``membership`` in the log
    learner_match_index: Mapping[NodeId, Index] = field(default_factory=dict)  # empty unless leader
    awaiting_snapshot: frozenset[NodeId] = frozenset()  # peers that need entries from before the log
    is_rejoining: bool = False  # counts towards no quorum; see ``HardState``
    rejoining: Mapping[NodeId, frozenset[NodeId]] = field(
        default_factory=dict
    )  # peers that rejoin, and the voters that have not confirmed this leader for them; empty unless leader
