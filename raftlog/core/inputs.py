"""The inputs of a core. Every input is data; none carries a callback."""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.core.membership import Membership
from raftlog.core.messages import Message
from raftlog.types import EntryId, Index, NodeId, Token, WriteId


@dataclass(frozen=True, slots=True)
class Tick:
    """One unit of time has passed. Timeouts are counted in ticks, never in seconds."""


@dataclass(frozen=True, slots=True)
class Receive:
    """A message has come. The driver takes the ready right after each message with entries."""

    sender: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Propose:
    """Append ``index_count`` indexes: a batch of n records spans n."""

    token: Token
    index_count: int


@dataclass(frozen=True, slots=True)
class ConfirmRead:
    """Ask for an index that a linearizable read must wait for (the paper's ReadIndex)."""

    token: Token


@dataclass(frozen=True, slots=True)
class ChangeMembership:
    """Make ``target`` the membership, one change at a time (thesis 4.3).

    ``Appended`` names its first entry. The change is finished when ``target`` is in force and committed;
    until then a new leader may undo it.
    """

    token: Token
    target: Membership


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Transfer leadership to ``to`` as soon as it has the whole log; proposals are refused meanwhile."""

    to: NodeId


@dataclass(frozen=True, slots=True)
class Campaign:
    """Hold an election now. The first replica of a new group gets this, so that leaders spread evenly."""


@dataclass(frozen=True, slots=True)
class Unquiesce:
    """A request has come that only a leader can answer: make sure that there is a leader."""


@dataclass(frozen=True, slots=True)
class WriteFinished:
    """The write is durable. Writes finish in the order in which they were handed out."""

    write_id: WriteId


@dataclass(frozen=True, slots=True)
class HardStateSaved:
    """The hard states of this write and of all before it are durable, but not all of their entries.

    Entries may wait for room on a full disk; a hard state needs no room.
    """

    write_id: WriteId


@dataclass(frozen=True, slots=True)
class AppendCut:
    """Of the entries ordered for ``to`` only those up to ``last`` were sent.

    An append has a limit of bytes, and nothing is sent that is ordered while entries are read from the disk.
    """

    to: NodeId
    last: Index


@dataclass(frozen=True, slots=True)
class AppendDropped:
    """An append that was ordered for ``to`` was not sent, as there was no room or the log has changed.

    The leader orders no entries for ``to`` until its next reply.
    """

    to: NodeId


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """The connection to a peer broke, or the peer has been silent for an election timeout."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class PeerReachable:
    """The node of a peer that was unreachable is heard from again."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class LogTruncatedPrefix:
    """The log begins after ``snapshot`` now; the entries before were committed and durable here."""

    snapshot: EntryId


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The log is empty and begins after ``snapshot``, durably; the state machine has the state there.

    The driver asks ``Raft.may_install`` just before it replaces anything.
    """

    snapshot: EntryId
    membership: Membership  # in force at the snapshot


Input = (
    Tick
    | Receive
    | Propose
    | ConfirmRead
    | ChangeMembership
    | TransferLeadership
    | Campaign
    | Unquiesce
    | WriteFinished
    | HardStateSaved
    | AppendCut
    | AppendDropped
    | PeerUnreachable
    | PeerReachable
    | LogTruncatedPrefix
    | SnapshotInstalled
)
