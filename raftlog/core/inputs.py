"""The inputs of a core. Every input is data; no input carries a callback."""

from __future__ import annotations

from msgspec import Struct

from raftlog.core.membership import Membership
from raftlog.core.messages import Message
from raftlog.types import EntryId, Index, NodeId, Token, WriteId


class Tick(Struct, frozen=True):
    """One unit of time has passed. Timeouts are counted in ticks, never in seconds."""


class Receive(Struct, frozen=True):
    """A message has arrived. After each message with entries the driver takes the ready at once."""

    sender: NodeId
    message: Message


class Propose(Struct, frozen=True):
    """Append ``index_count`` indexes: a batch of n records spans n.

    Without a token the core sends no answer: the driver sees by the last index whether they were appended.
    """

    token: Token | None
    index_count: int


class ConfirmRead(Struct, frozen=True):
    """Request an index that a linearizable read must wait for (the paper's ReadIndex)."""

    token: Token


class ChangeMembership(Struct, frozen=True):
    """Make ``target`` the membership, one change at a time (thesis 4.3).

    ``Appended`` names its first entry. The change is finished when ``target`` is in force and committed;
    until then a new leader may undo it.
    """

    token: Token
    target: Membership


class TransferLeadership(Struct, frozen=True):
    """Transfer leadership to ``to`` as soon as it has the whole log; proposals are refused meanwhile."""

    to: NodeId


class Campaign(Struct, frozen=True):
    """Hold an election now. A new group's first replica gets this input, so that leaders spread evenly."""


class Unquiesce(Struct, frozen=True):
    """Make sure that there is a leader: a request has arrived that only a leader can answer."""


class WriteFinished(Struct, frozen=True):
    """The write is durable. Writes finish in the order in which they were handed out."""

    write_id: WriteId


class HardStateSaved(Struct, frozen=True):
    """The hard states of this write and of all earlier writes are durable, but not all of their entries.

    Entries may wait for room on a full disk; a hard state needs no room.
    """

    write_id: WriteId


class AppendCut(Struct, frozen=True):
    """Entries that were ordered for ``to`` were sent only up to ``last``.

    An append has a limit of bytes. While entries are read from the disk, no other ordered append is sent.
    """

    to: NodeId
    last: Index


class AppendDropped(Struct, frozen=True):
    """An append that was ordered for ``to`` was not sent: no room, or the log has changed meanwhile.

    The leader orders no entries for ``to`` until its next reply.
    """

    to: NodeId


class PeerUnreachable(Struct, frozen=True):
    """The connection to a peer broke, or the peer has been silent for an election timeout."""

    peer: NodeId


class PeerReachable(Struct, frozen=True):
    """The node of an unreachable peer is heard again."""

    peer: NodeId


class LogTruncatedPrefix(Struct, frozen=True):
    """The log now begins after ``snapshot``; the removed entries were committed and durable here."""

    snapshot: EntryId


class SnapshotInstalled(Struct, frozen=True):
    """The log is empty and begins durably after ``snapshot``; the state machine has the snapshot's state.

    The driver asks ``Raft.may_install`` just before it replaces the log and the state.
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
