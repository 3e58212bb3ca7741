"""The environment of a Raft group's driver, by role, and the driver's listener. Interfaces only."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Protocol

from raftlog.core.membership import Membership
from raftlog.core.messages import Message
from raftlog.core.ready import Role
from raftlog.node.catch_up import CatchUpRate
from raftlog.node.flusher import Flushed
from raftlog.node.rpc import Calls
from raftlog.storage.filesystem import Buffer
from raftlog.types import GroupId, Index, NodeId, Term


class GroupListener(Protocol):
    """Receives events of a group, on the loop's thread. Methods must neither block nor raise."""

    def role_changed(self, role: Role, term: Term, leader: NodeId | None) -> None:
        """Handle a change of the member's role, term or known leader."""

    def commit_advanced(self, commit_index: Index) -> None:
        """Handle progress: the state machine has applied all entries up to this index."""

    def membership_changed(self, membership: Membership, is_committed: bool) -> None:
        """Handle a membership that is newly in force in this log, or newly known to be committed.

        The membership that was found when the group was opened is not reported: read it from the group.
        """

    def removed(self) -> None:
        """Handle the removal of this replica: a committed membership no longer names it. Delete the replica.

        Do not delete a replica that was added again meanwhile: the log of the new replica first repeats the
        removal of the old replica. Removals are reported only after the log has named this replica.
        """

    def replica_stopped(self, error: BaseException) -> None:
        """Handle the end of this replica after a failed sync or damage: it no longer serves or votes."""


class Elections:
    """Counters of the elections in which members of this broker were candidates, for metrics."""

    __slots__ = ("started", "won")

    def __init__(self) -> None:
        self.started = 0
        self.won = 0


class GroupClock(Protocol):
    """The clock of a group's host."""

    @property
    def tick_ms(self) -> int:
        """The length of a tick in milliseconds, for the health of peers."""

    def wall_ms(self) -> int:
        """The wall-clock time in milliseconds, for timestamps of control records."""


class GroupNetwork(Protocol):
    """The connection of a group to the other brokers."""

    @property
    def node_id(self) -> NodeId:
        """The id of this broker."""

    @property
    def calls(self) -> Calls:
        """The calls to other brokers, for snapshots."""

    @property
    def catch_up(self) -> CatchUpRate:
        """The limit of bytes per second that this broker sends, over all groups, to members that are far
        behind.
        """

    def send(self, group: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()) -> bool:
        """Queue a message; False if the message was dropped.

        After a failure of the process all messages are dropped.
        """

    def watch_peers(self, peers: frozenset[NodeId]) -> None:
        """Watch peers that share a group with this broker, and send them heartbeats of this broker."""


class GroupDisk(Protocol):
    """The disk that a group shares with other groups."""

    @property
    def read_places(self) -> asyncio.Semaphore:
        """The semaphore that limits large reads for other brokers; a read holds it until its bytes were
        received.
        """

    def has_room(self) -> bool:
        """Whether the disk has more free space than its reserve."""

    def request_sync(self, group: Flushed) -> None:
        """Make the flusher call the group's ``begin_sync`` and ``end_sync``."""


class GroupScheduler(Protocol):
    """Schedules later work of a group on the event loop."""

    def schedule(self, group: GroupId) -> None:
        """Call the group's ``drain`` at the end of this loop turn."""

    def apply_later(self, group: GroupId) -> None:
        """Call the group's ``apply_more`` in a later turn of the loop."""

    def append_soon(self, group: GroupId) -> None:
        """Call the group's ``append_written`` once the frames of this loop turn were sent."""

    def begin(self, work: Coroutine[None, None, None], group: GroupId | None = None) -> asyncio.Task[None]:
        """Run ``work`` as a task, which the caller must keep. An error of the task ends the process."""


class GroupReports(Protocol):
    """Receives the reports of a group."""

    @property
    def elections(self) -> Elections:
        """The counters of the elections of all groups."""

    def replica_failed(self, group: GroupId, error: BaseException) -> None:
        """Note that this broker's replica of a group has ended because of ``error``."""

    def fail(self, error: BaseException, group: GroupId | None = None) -> None:
        """End the process because an invariant is broken; ``group`` is the group in which it
        broke, if known.
        """


class GroupEnvironment(GroupClock, GroupNetwork, GroupDisk, GroupScheduler, GroupReports, Protocol):
    """The host of a group as the driver uses it.

    Each part of the driver uses only the roles that it needs.
    """
