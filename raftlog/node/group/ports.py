"""The environment of a Raft group's driver, by role, and its listener. Nothing is decided here."""

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
    """Receives events of a group. Calls come on the loop's thread and must neither block nor raise."""

    def role_changed(self, role: Role, term: Term, leader: NodeId | None) -> None:
        """The member's role, its term or the leader it knows is new."""

    def commit_advanced(self, commit_index: Index) -> None:
        """The machine has applied everything up to this index."""

    def membership_changed(self, membership: Membership, is_committed: bool) -> None:
        """The membership in force here is new, or is committed now.

        What was found when the group was opened is not told: ask the group.
        """

    def removed(self) -> None:
        """A membership without this replica is committed, after its log has named it: the replica may go.

        Unless it was added again since: the new replica reads of the end of the former one first.
        """

    def replica_stopped(self, error: BaseException) -> None:
        """Failed sync or damaged log: this replica serves and votes no more."""


class Elections:
    """Elections in which members of this broker were candidates, for metrics."""

    __slots__ = ("started", "won")

    def __init__(self) -> None:
        self.started = 0
        self.won = 0


class GroupClock(Protocol):
    """The time of a group's host."""

    @property
    def tick_ms(self) -> int:
        """The milliseconds of a tick, for the health of peers."""

    def wall_ms(self) -> int:
        """The wall-clock time in milliseconds, for timestamps of control records."""


class GroupNetwork(Protocol):
    """The other brokers."""

    @property
    def node_id(self) -> NodeId:
        """The id of this broker."""

    @property
    def calls(self) -> Calls:
        """Questions to other brokers, for snapshots."""

    @property
    def catch_up(self) -> CatchUpRate:
        """The limit of bytes per second to members that are far behind, for all groups together."""

    def send(self, group: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()) -> bool:
        """Queue a message; False when it was dropped, as all are once the process has failed."""

    def watch_peers(self, peers: frozenset[NodeId]) -> None:
        """Watch peers in a group with this broker, and let them hear that this broker is alive."""


class GroupDisk(Protocol):
    """The disk that a group shares with others."""

    @property
    def read_places(self) -> asyncio.Semaphore:
        """The semaphore that each large read for others holds until its reader has the bytes."""

    def has_room(self) -> bool:
        """Whether the disk has more than its reserve left."""

    def request_sync(self, group: Flushed) -> None:
        """Have the flusher call ``begin_sync`` and ``end_sync``."""


class GroupScheduler(Protocol):
    """Work of a group that is done later, on the event loop."""

    def schedule(self, group: GroupId) -> None:
        """Call ``drain`` at the end of this loop turn."""

    def apply_later(self, group: GroupId) -> None:
        """Call ``apply_more`` in a later turn of the loop."""

    def append_soon(self, group: GroupId) -> None:
        """Call ``append_written`` once the frames of this loop turn have left."""

    def begin(self, work: Coroutine[None, None, None], group: GroupId | None = None) -> asyncio.Task[None]:
        """Run ``work`` as a task, which the caller keeps. An error of the task ends the process."""


class GroupReports(Protocol):
    """The reports of a group to its host."""

    @property
    def elections(self) -> Elections:
        """Counters of the elections of all groups."""

    def replica_failed(self, group: GroupId, error: BaseException) -> None:
        """A replica of this group has ended for this reason."""

    def fail(self, error: BaseException, group: GroupId | None = None) -> None:
        """A broken invariant, of this group: the process must end."""


class GroupEnvironment(GroupClock, GroupNetwork, GroupDisk, GroupScheduler, GroupReports, Protocol):
    """The host of a group, as the driver uses it: its parts take only the roles that they need."""
