"""What can happen to a Raft group. Every input is data; none carries a callback."""

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
    """A message came in. The driver takes the ready right after each one that carries entries."""

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

    ``Appended`` says that its first entry stands in the log. The change is finished when ``target`` is in
    force and committed; until then a new leader may undo it.
    """

    token: Token
    target: Membership


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Hand leadership to ``to`` as soon as it has the whole log; proposals wait meanwhile (are refused)."""

    to: NodeId


@dataclass(frozen=True, slots=True)
class Campaign:
    """Hold an election now: a new group's first replica says this, so that leaders spread evenly."""


@dataclass(frozen=True, slots=True)
class Unquiesce:
    """A request came that only a leader can answer: make sure that there is one."""


@dataclass(frozen=True, slots=True)
class WriteFinished:
    """The write is durable. Writes finish in the order they were handed out."""

    write_id: WriteId


@dataclass(frozen=True, slots=True)
class HardStateSaved:
    """Term and vote, as this write and all before it handed them out, are durable.

    Entries may wait for room on a full disk; term and vote need none, and need not wait for entries.
    """

    write_id: WriteId


@dataclass(frozen=True, slots=True)
class AppendCut:
    """Of what was ordered for ``to`` only entries up to ``last`` were sent.

    One append has its limit of bytes, and what is ordered while one is read from the disk is not sent.
    """

    to: NodeId
    last: Index


@dataclass(frozen=True, slots=True)
class AppendDropped:
    """Nothing of what was ordered for ``to`` was sent: no room, or the entries are no longer in the log.

    The core orders no entries for ``to`` until a reply from it has come.
    """

    to: NodeId


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """The connection to a peer broke, or it has been silent for an election timeout."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class LogTruncatedPrefix:
    """The log begins after ``snapshot`` now; what lies before was committed and durable here."""

    snapshot: EntryId


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The log is empty and begins after ``snapshot``, durably; the state machine stands there.

    The driver asks ``Raft.may_install`` just before it replaces anything, and steps nothing in between.
    """

    snapshot: EntryId
    membership: Membership  # the one in force there


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
    | LogTruncatedPrefix
    | SnapshotInstalled
)
