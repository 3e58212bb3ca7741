"""The inputs of a core. Every input is data; no input carries a callback."""

from __future__ import annotations

from msgspec import Struct

from raftlog.core.membership import Membership
from raftlog.core.messages import Message
from raftlog.types import EntryId, Index, NodeId, Token, WriteId


class Tick(Struct, frozen=True):
    """One unit of time has passed. Timeouts are counted in ticks, never in seconds."""


class Receive(Struct, frozen=True):
    """A message has arrived. If it has entries, the driver calls ``take_ready`` before the next input."""

    sender: NodeId
    message: Message


class Propose(Struct, frozen=True):
    """A proposal: append ``index_count`` indexes, one for each record of a batch.

    Without a token the core sends no answer: the driver sees by the last index whether the indexes were
    appended.
    """

    token: Token | None
    index_count: int


class ConfirmRead(Struct, frozen=True):
    """Request an index that a linearizable read must wait for (the paper's ReadIndex)."""

    token: Token


class ChangeMembership(Struct, frozen=True):
    """A request to make ``target`` the membership, one change at a time (thesis 4.3).

    The answer ``Appended`` names the first entry of the change. The change is finished when ``target`` is in
    force and committed; until then a new leader may undo the change.
    """

    token: Token
    target: Membership


class TransferLeadership(Struct, frozen=True):
    """Transfer leadership to ``to`` as soon as it has the whole log; proposals are refused meanwhile."""

    to: NodeId


class Campaign(Struct, frozen=True):
    """An order to hold an election now.

    The first replica of a new group gets one, to spread leaders evenly.
    """


class Unquiesce(Struct, frozen=True):
    """An order to make sure that there is a leader: a request has arrived that only a leader can answer."""


class WriteFinished(Struct, frozen=True):
    """A write is durable. Writes finish in the order in which they were handed out."""

    write_id: WriteId


class HardStateSaved(Struct, frozen=True):
    """The hard states of this write and of all earlier writes are durable, but some of their entries are not.

    Entries may wait for room on a full disk; a hard state needs no room.
    """

    write_id: WriteId


class AppendCut(Struct, frozen=True):
    """Entries that were ordered for ``to`` were sent only up to ``last``.

    The driver limits the bytes of an append. While it reads entries from the disk for a peer, it sends no
    other ordered append to that peer.
    """

    to: NodeId
    last: Index


class AppendDropped(Struct, frozen=True):
    """An append that was ordered for ``to`` was not sent, for lack of room or because the log has changed.

    The leader orders no entries for ``to`` until the next reply of ``to``.
    """

    to: NodeId


class PeerUnreachable(Struct, frozen=True):
    """The connection to a peer broke, or the peer has been silent for an election timeout."""

    peer: NodeId


class PeerReachable(Struct, frozen=True):
    """The node of an unreachable peer has answered again."""

    peer: NodeId


class LogTruncatedPrefix(Struct, frozen=True):
    """The log now begins after ``snapshot``; the removed entries were committed, and durable on this disk."""

    snapshot: EntryId


class SnapshotInstalled(Struct, frozen=True):
    """The log is empty and begins durably after ``snapshot``, whose state the state machine now has.

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
