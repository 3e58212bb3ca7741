"""The membership that this replica uses, and whether it is known to be committed.

Decides when the listener is called. Leaves to others: which membership is in force (``core``), and waiting
for a change (``pending_requests``).
"""

from __future__ import annotations

from raftlog.core.membership import Membership
from raftlog.core.raft import Raft
from raftlog.node.group.ports import GroupListener
from raftlog.types import NodeId


class MembershipWatch:
    """The membership that was last reported to the listener of one replica."""

    def __init__(self, node_id: NodeId, core: Raft, listener: GroupListener) -> None:
        self._node_id = node_id
        self._core = core
        self._listener = listener
        self._told = core.membership_index, core.membership
        self.is_open = not self._is_committed  # whether the newest membership is not known to be committed

    @property
    def is_removed(self) -> bool:
        """Whether this log has named this node as a member, and a committed membership no longer names it."""
        return (
            not self.is_open
            and self._node_id not in self._core.membership.members
            and self._core.has_named(self._node_id)
        )

    @property
    def may_have_news(self) -> bool:
        """Whether ``look`` may have a membership to report: the newest is not committed, or was written
        again.
        """
        return self.is_open or self._core.membership_index != self._told[0]

    def look(self) -> Membership | None:
        """Report a new membership to the listener; return it if it was committed since the last call."""
        membership, is_committed = self._core.membership, self._is_committed
        newest = self._core.membership_index, membership  # an equal membership may have been written again
        if newest == self._told and is_committed is not self.is_open:
            return None
        self._told, self.is_open = newest, not is_committed
        self._listener.membership_changed(membership, is_committed)
        if self.is_removed:
            self._listener.removed()
        return membership if is_committed else None

    @property
    def _is_committed(self) -> bool:
        return self._core.commit_index >= self._core.membership_index
